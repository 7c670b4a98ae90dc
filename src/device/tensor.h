#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "device/dtype.h"

namespace tandem {

/// A borrowed block of device memory seen as a dense row-major array of known element type and
/// rank. Trivially copyable; owns nothing. The last dimension is contiguous; the first may have a
/// larger stride, so that a view can be some columns of a wider matrix.
template <typename T, int Rank>
struct TensorView {
  static_assert(Rank >= 1 && Rank <= 4);
  T* data = nullptr;
  std::array<int64_t, Rank> shape{};
  int64_t row_stride = 0;  ///< elements from one index of the first dimension to the next

  static TensorView make(T* data, std::array<int64_t, Rank> shape) {
    TensorView view{data, shape, 1};
    for (int i = 1; i < Rank; ++i) view.row_stride *= shape[i];
    return view;
  }

  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  T* row(int64_t i) const {
    TANDEM_DCHECK(i >= 0 && i < shape[0], "row outside the tensor");
    return data + i * row_stride;
  }
  T& operator[](int64_t i) const
    requires(Rank == 1)
  {
    TANDEM_DCHECK(i >= 0 && i < shape[0], "index outside the tensor");
    return data[i];
  }
  /// The first `n` rows.
  TensorView head(int64_t n) const {
    TANDEM_CHECK(n >= 0 && n <= shape[0], "more rows than the tensor has");
    TensorView view = *this;
    view.shape[0] = n;
    return view;
  }
  operator TensorView<const T, Rank>() const
    requires(!std::is_const_v<T>)
  {
    return {data, shape, row_stride};
  }
};

/// A tensor whose element type is known at run time only (weights, KV pools).
struct AnyTensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, 4> shape{};

  template <typename T, int Rank>
  TensorView<T, Rank> as() const {
    TANDEM_CHECK(dtype == DTypeOf<std::remove_const_t<T>>::value, "tensor has another dtype");
    TANDEM_CHECK(rank == Rank, "tensor has another rank");
    std::array<int64_t, Rank> dims{};
    for (int i = 0; i < Rank; ++i) dims[i] = shape[i];
    return TensorView<T, Rank>::make(static_cast<T*>(data), dims);
  }
};

}  // namespace tandem
