#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "cpu/vector.h"

namespace tandem::cpu {

/// Adds rows of floats in the binary tree over their leaf numbers; a missing leaf passes its
/// sibling on. A contiguous, aligned power-of-two range of leaves is one subtree, so its sum may be
/// made elsewhere and added as one row without changing a bit. Works in blocks of columns so that
/// the partial sums stay in the first-level cache. Lives on the stack of one call.
class TreeSum {
 public:
  static constexpr int64_t kColumnsMax = 512;

  explicit TreeSum(int64_t columns) : columns_(columns) {
    TANDEM_DCHECK(columns <= kColumnsMax, "a block of columns");
  }

  /// The place for the row of `leaf`, to be filled before the next call. Leaves ascend.
  float* add_leaf(int32_t leaf) {
    float* place = sums_[push(leaf)].data();
    rows_[depth_ - 1] = place;
    return place;
  }

  /// The row of `leaf` where it lies, to stay as it is until the sum is finished. Not copied.
  void add_leaf(int32_t leaf, const float* row) { rows_[push(leaf)] = row; }

  bool empty() const { return depth_ == 0; }

  /// The sum of all rows; there is at least one.
  const float* finish() {
    TANDEM_DCHECK(depth_ > 0, "a sum of something");
    while (depth_ > 1) join();
    return rows_[0];
  }

  /// The same, written to `y`, which may be where one of the rows lies.
  void finish(float* y) {
    TANDEM_DCHECK(depth_ > 0, "a sum of something");
    while (depth_ > 2) join();
    if (depth_ == 2) {
      add(y, rows_[0], rows_[1], columns_);
    } else if (y != rows_[0]) {
      std::copy_n(rows_[0], columns_, y);
    }
  }

 private:
  static constexpr int kLevelsMax = 33;  // of a tree over 32-bit leaves

  /// Makes room for the row of `leaf`; its place among the partial sums.
  uint32_t push(int32_t leaf) {
    // Subtrees that meet below the new leaf's branch are complete: nothing later joins them.
    while (depth_ > 1 && meeting_level(leaf_[depth_ - 2], leaf_[depth_ - 1]) <
                             meeting_level(leaf_[depth_ - 1], leaf)) {
      join();
    }
    leaf_[depth_] = leaf;
    return depth_++;
  }

  /// Height of the node at which the paths of two leaves meet.
  static int meeting_level(int32_t a, int32_t b) {
    return std::bit_width(static_cast<uint32_t>(a) ^ static_cast<uint32_t>(b));
  }

  void join() {
    --depth_;
    add(sums_[depth_ - 1].data(), rows_[depth_ - 1], rows_[depth_], columns_);
    rows_[depth_ - 1] = sums_[depth_ - 1].data();
    leaf_[depth_ - 1] = leaf_[depth_];
  }

  const int64_t columns_;
  uint32_t depth_ = 0;
  std::array<int32_t, kLevelsMax> leaf_;       // the last leaf under each partial sum
  std::array<const float*, kLevelsMax> rows_;  // each partial sum: in sums_, or a leaf elsewhere
  alignas(64) std::array<std::array<float, kColumnsMax>, kLevelsMax> sums_;
};

}  // namespace tandem::cpu
