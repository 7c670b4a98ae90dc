#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

/// Finds the first stop string in streamed text. Text that could still become a stop string is
/// held back, so that nothing past (or of) a stop is ever emitted.
class StopMatcher {
 public:
  struct Options {
    bool include_stop = false;  ///< keep the matched string in the output (vLLM's
                                ///< include_stop_str_in_output)
  };
  StopMatcher(std::vector<std::string> stops, Options options);

  struct Match {
    std::string text;   ///< safe to emit now
    bool stopped = false;
    size_t stop_index = 0;  ///< which stop string, when stopped
  };
  /// Adds text. After a match every later push returns nothing.
  Match push(std::string_view text);
  /// Ends the stream: what was held back.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  Options options_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tandem::text
