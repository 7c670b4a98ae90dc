#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "device/dtype.h"

namespace tandem::ops {

/// What a weight matrix is, before any layout. Stacked matrices (experts) share one spec.
struct LinearSpec {
  int64_t stack = 1;           ///< matrices in the stack: 1, or the experts of a rank
  int64_t out_features = 0;    ///< rows of W
  int64_t in_features = 0;     ///< columns of W, the contraction
  DType dtype = DType::kBF16;  ///< kBF16 or kF32: stored type, and the type x is rounded to
  /// Columns of one partial sum (contracts: numerics). The contraction is cut at multiples of
  /// `partition`, each part summed in f32 from zero, and the parts added in one binary tree over
  /// the part index. 0 means no cut: one running sum over all columns.
  int64_t partition = 0;
};

/// Where one weight's rows come from: row-major [rows, in_features] of a checkpoint.
struct LinearSource {
  const void* data = nullptr;
  DType dtype = DType::kBF16;  ///< kBF16, kF16 or kF32
  int64_t rows = 0;
  /// Elements from one row to the next; 0: in_features. Larger when only some columns are taken.
  int64_t row_stride = 0;
};

/// Weights of y = x W^T in the layout the device's kernels read; packed before any product, then
/// immutable. Owns its memory. The layout is the device's own affair.
class PackedLinear {
 public:
  PackedLinear() = default;
  /// Reserves memory for the stack; contents are zero until set.
  static Result<PackedLinear> create(Device& device, const LinearSpec& spec);

  /// Packs `source` into rows [first_row, first_row + source.rows) of matrix `index`: several
  /// calls fuse several checkpoint tensors (q, k and v; gate and up) into one weight.
  void set_rows(int64_t index, int64_t first_row, const LinearSource& source);

  /// Matrix `index` becomes matrix `source_index` of a weight with the same shape and layout.
  void copy_matrix(int64_t index, const PackedLinear& source, int64_t source_index);

  const LinearSpec& spec() const { return spec_; }
  const Buffer& storage() const { return storage_; }

  static size_t bytes_needed(const LinearSpec& spec);

 private:
  LinearSpec spec_;
  Buffer storage_;
};

}  // namespace tandem::ops
