#pragma once

#include <cstdint>

namespace tandem::kv {

/// Positions [first, end) of a sequence.
struct TokenRange {
  uint32_t first = 0;
  uint32_t end = 0;
  bool empty() const { return first >= end; }
  uint32_t count() const { return empty() ? 0 : end - first; }
  bool operator==(const TokenRange&) const = default;
};

/// Pages [first, end) of a sequence, counted from its first token.
struct PageRange {
  uint32_t first = 0;
  uint32_t end = 0;
  uint32_t count() const { return end - first; }
  bool operator==(const PageRange&) const = default;
};

}  // namespace tandem::kv
