#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

/// Finds the first stop string in streamed text. Text that could still become a stop string is
/// held back, so that nothing past (or of) a stop is ever emitted.
///
/// First is the stop that ends first, and of several that end together the longest: the answer
/// then does not depend on how the text was cut, and needs no text past the stop. Time is linear
/// in the text whatever the stops are. Stops are valid UTF-8 and so is each pushed text, which
/// makes every emitted text valid too. An empty stop never matches.
class StopMatcher {
 public:
  struct Options {
    bool include_stop = false;  ///< keep the matched string in the output (vLLM's
                                ///< include_stop_str_in_output)
  };
  StopMatcher(std::vector<std::string> stops, Options options);

  struct Match {
    std::string text;  ///< safe to emit now
    bool stopped = false;
    size_t stop_index = 0;  ///< which stop string, when stopped
  };
  /// Adds text. After a match every later push returns nothing.
  Match push(std::string_view text);
  /// Ends the stream: what was held back.
  std::string finish();

 private:
  struct Stop {
    std::string text;
    /// borders[i]: length of the longest proper prefix of text[0..i] that is also its suffix.
    std::vector<uint32_t> borders;
    uint32_t matched = 0;  ///< how much of `text` the stream ends with
  };
  static void advance(Stop& stop, char byte);

  std::vector<Stop> stops_;
  Options options_;
  // What is held back is always the start of a stop, so it needs no copy: the first
  // held_bytes_ of stops_[held_stop_].
  size_t held_stop_ = 0;
  size_t held_bytes_ = 0;
  bool stopped_ = false;
};

}  // namespace tandem::text
