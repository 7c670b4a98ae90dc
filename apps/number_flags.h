#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace tandem::apps {

/// Refuses what is no whole number below 2^64. CLI11 alone wraps "-1" and cuts what is too large;
/// in narrower types it notices both.
inline CLI::Validator unsigned_64() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        if (parsed.ec == std::errc() && parsed.ptr == end) return "";
        return text + " is no whole number from 0 to 18446744073709551615";
      },
      "");
}

/// Refuses NaN. CLI::Range compares, so it lets through what is neither below nor above.
inline CLI::Validator a_number() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && !std::isnan(value)) return "";
        return text + " is no number";
      },
      "");
}

}  // namespace tandem::apps
