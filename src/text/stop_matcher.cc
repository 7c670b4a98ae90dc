#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace tandem::text {
namespace {

// The failure function of Knuth, Morris and Pratt.
std::vector<uint32_t> borders_of(std::string_view text) {
  std::vector<uint32_t> borders(text.size(), 0);
  uint32_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = borders[length - 1];
    if (text[i] == text[length]) ++length;
    borders[i] = length;
  }
  return borders;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, Options options) : options_(options) {
  for (std::string& stop : stops) {
    std::vector<uint32_t> borders = borders_of(stop);
    stops_.push_back({std::move(stop), std::move(borders)});
  }
}

// Never called on a complete match: the stream has stopped then.
void StopMatcher::advance(Stop& stop, char byte) {
  if (stop.text.empty()) return;
  while (stop.matched > 0 && byte != stop.text[stop.matched]) {
    stop.matched = stop.borders[stop.matched - 1];
  }
  if (byte == stop.text[stop.matched]) ++stop.matched;
}

StopMatcher::Match StopMatcher::push(std::string_view text) {
  Match match;
  if (stopped_) return match;

  size_t taken = 0;
  while (taken < text.size() && !stopped_) {
    size_t longest = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      advance(stop, text[taken]);
      if (stop.matched == stop.text.size() && stop.matched > longest) {
        longest = stop.matched;
        match.stop_index = i;
        stopped_ = true;
      }
    }
    ++taken;
  }

  size_t held_stop = 0;
  size_t held_bytes = 0;
  if (stopped_) {
    match.stopped = true;
    if (!options_.include_stop) held_bytes = stops_[match.stop_index].text.size();
  } else {
    for (size_t i = 0; i < stops_.size(); ++i) {
      if (stops_[i].matched <= held_bytes) continue;
      held_stop = i;
      held_bytes = stops_[i].matched;
    }
  }

  const size_t emitted_bytes = held_bytes_ + taken - held_bytes;
  const size_t from_held = std::min(held_bytes_, emitted_bytes);
  if (from_held > 0) match.text.assign(stops_[held_stop_].text, 0, from_held);
  match.text.append(text.substr(0, emitted_bytes - from_held));
  held_stop_ = held_stop;
  held_bytes_ = stopped_ ? 0 : held_bytes;
  return match;
}

std::string StopMatcher::finish() {
  if (held_bytes_ == 0) return {};
  return stops_[held_stop_].text.substr(0, std::exchange(held_bytes_, 0));
}

}  // namespace tandem::text
