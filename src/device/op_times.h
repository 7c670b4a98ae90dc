#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

/// Where a stream's time went, by op. A stream that was given one times each op it runs.
class OpTimes {
 public:
  struct Row {
    std::string_view op;
    int64_t calls = 0;
    std::chrono::nanoseconds time{0};
  };
  /// `op` must be a literal.
  void add(std::string_view op, std::chrono::nanoseconds time) {
    for (Row& row : rows_) {
      if (row.op == op) {
        ++row.calls;
        row.time += time;
        return;
      }
    }
    rows_.push_back({op, 1, time});
  }
  void clear() { rows_.clear(); }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Row> rows_;  // in order of first use; a model has a dozen ops
};

}  // namespace tandem
