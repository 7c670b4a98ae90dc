#pragma once

#include <cstdint>

namespace tandem::model {

/// [first, end) of heads, columns, rows or experts.
struct Range {
  int64_t first = 0;
  int64_t end = 0;

  int64_t count() const { return end - first; }
  bool operator==(const Range&) const = default;
};

}  // namespace tandem::model
