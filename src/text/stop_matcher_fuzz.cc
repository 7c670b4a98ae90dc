// Goal: no input makes StopMatcher emit anything but a prefix of the text that holds no stop.
// Method: the input is cut at zero bytes: three stops, then chunks.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/stop_matcher.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      parts.emplace_back();
    } else {
      parts.back().push_back(static_cast<char>(data[i]));
    }
  }
  if (parts.size() < 4) return 0;
  const std::vector<std::string> stops(parts.begin(), parts.begin() + 3);

  tandem::text::StopMatcher matcher(stops, {});
  std::string text;
  std::string emitted;
  bool stopped = false;
  for (size_t i = 3; i < parts.size(); ++i) {
    const tandem::text::StopMatcher::Match match = matcher.push(parts[i]);
    text += parts[i];
    emitted += match.text;
    stopped |= match.stopped;
  }
  emitted += matcher.finish();
  if (!text.starts_with(emitted)) abort();
  if (!stopped && emitted != text) abort();
  for (const std::string& stop : stops) {
    if (!stop.empty() && emitted.find(stop) != std::string::npos) abort();
    if (!stop.empty() && !stopped && text.find(stop) != std::string::npos) abort();
  }
  return 0;
}
