#pragma once

// long: what the tests of all ops share, so that each of them is only its reference and its cases.

// As in cpu/vector.cc and cpu/panel.cc: which instruction sets the kernels were compiled for.
#define HWY_WANT_AVX3_DL 1

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "cpu/cpu_device.h"
#include "device/tensor.h"
#include "hwy/targets.h"

namespace tandem::ops::testing {

/// One rounding to nearest changes x by at most kRoundF32 * |x| (24 significant bits), and to bf16
/// by kRoundBF16 * |x| (8 bits). Tolerances count roundings in these units.
inline constexpr double kRoundF32 = 0x1p-24;
inline constexpr double kRoundBF16 = 0x1p-8;
/// cpu/vector.h promises the exponential to 2 ulp, which is at most 4 roundings.
inline constexpr double kRoundingsOfExp = 4;
/// A result below the normal range is off by no more than the smallest normal number.
inline constexpr double kSmallestNormal = std::numeric_limits<float>::min();

inline float rounded(DType dtype, float x) {
  return dtype == DType::kBF16 ? to_float(to_bf16(x)) : x;
}

/// Random inputs from a fixed seed, which every failure shows; never zero.
class Random {
 public:
  explicit Random(uint32_t seed) : generator_(seed), trace_(__FILE__, __LINE__, label(seed)) {}

  std::vector<float> normal(int64_t n, float spread = 1.0f) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = normal_value(spread);
    return x;
  }
  float normal_value(float spread = 1.0f) {
    float v = 0.0f;
    while (v == 0.0f) v = spread * std::normal_distribution<float>()(generator_);
    return v;
  }
  /// In [first, last].
  int64_t integer(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(generator_);
  }
  template <typename T>
  void shuffle(std::vector<T>& x) {
    std::shuffle(x.begin(), x.end(), generator_);
  }
  /// `count` distinct numbers of [0, end), ascending.
  std::vector<int32_t> choose(int64_t count, int64_t end) {
    std::vector<int32_t> all(static_cast<size_t>(end));
    std::iota(all.begin(), all.end(), 0);
    shuffle(all);
    all.resize(static_cast<size_t>(count));
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  static std::string label(uint32_t seed) { return "seed " + std::to_string(seed); }
  std::mt19937 generator_;
  ::testing::ScopedTrace trace_;
};

/// The bytes of one row's result.
using Bits = std::vector<std::byte>;
/// Numbers of rows of an input, in the order in which an op gets them.
using Rows = std::vector<int64_t>;
inline Rows all_rows(int64_t count) {
  Rows rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}
template <typename T>
void append_bits(Bits& bits, const T* x, int64_t n) {
  static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);
  const auto* bytes = reinterpret_cast<const std::byte*>(x);
  bits.insert(bits.end(), bytes, bytes + static_cast<size_t>(n) * sizeof(T));
}

/// A matrix whose rows lie apart in a larger block of memory. All bytes start as 0xff: NaN in
/// every float type, -1 as an integer. What lies between and around the rows must stay so.
template <typename T>
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), storage_(static_cast<size_t>((rows + 2) * stride())) {
    std::memset(static_cast<void*>(storage_.data()), 0xff, storage_.size() * sizeof(T));
  }
  Matrix(int64_t rows, int64_t columns, const std::vector<T>& values) : Matrix(rows, columns) {
    for (int64_t r = 0; r < rows; ++r) std::copy_n(&values[index(r * columns)], columns, row(r));
  }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  T* row(int64_t r) { return &storage_[index((r + 1) * stride())]; }
  const T* row(int64_t r) const { return &storage_[index((r + 1) * stride())]; }
  TensorView<T, 2> view() { return {row(0), {rows_, columns_}, stride()}; }
  TensorView<const T, 2> view() const { return {row(0), {rows_, columns_}, stride()}; }
  /// For a matrix of one row.
  TensorView<T, 1> vector() { return TensorView<T, 1>::make(row(0), {columns_}); }

  /// A matrix of the listed rows.
  Matrix pick(const Rows& rows) const {
    Matrix picked(static_cast<int64_t>(rows.size()), columns_);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(row(rows[i]), columns_, picked.row(static_cast<int64_t>(i)));
    }
    return picked;
  }
  std::vector<Bits> bits() const {
    std::vector<Bits> bits(index(rows_));
    for (int64_t r = 0; r < rows_; ++r) append_bits(bits[index(r)], row(r), columns_);
    return bits;
  }
  bool margins_untouched() const {
    Matrix clean(rows_, columns_);
    for (int64_t r = 0; r < rows_; ++r) std::copy_n(row(r), columns_, clean.row(r));
    return std::memcmp(storage_.data(), clean.storage_.data(), storage_.size() * sizeof(T)) == 0;
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  int64_t stride() const { return columns_ + 5; }
  int64_t rows_;
  int64_t columns_;
  std::vector<T> storage_;
};

template <typename T>
TensorView<const T, 1> view_of(const std::vector<T>& x) {
  return TensorView<const T, 1>::make(x.data(), {static_cast<int64_t>(x.size())});
}

/// A K or V pool of poisoned bytes; a slot is page * page_tokens + offset.
struct Pool {
  /// `shape` is [pages, kv_heads, page_tokens, head_dim].
  Pool(DType dtype, std::array<int64_t, 4> shape)
      : bytes(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * dtype_bytes(dtype),
              std::byte{0xff}),
        tensor{.data = bytes.data(), .dtype = dtype, .rank = 4, .shape = shape} {}
  Pool(Pool&& other) = default;  // the bytes stay where they are
  Pool(const Pool& other) : bytes(other.bytes), tensor(other.tensor) { tensor.data = bytes.data(); }

  size_t offset(int64_t slot, int64_t head, int64_t d) const {
    const auto [pages, kv_heads, page_tokens, head_dim] = tensor.shape;
    const int64_t row = (slot / page_tokens * kv_heads + head) * page_tokens + slot % page_tokens;
    return static_cast<size_t>(row * head_dim + d) * dtype_bytes(tensor.dtype);
  }
  float at(int64_t slot, int64_t head, int64_t d) const {
    const std::byte* element = &bytes[offset(slot, head, d)];
    return tensor.dtype == DType::kF32 ? read<float>(element) : to_float(read<bf16>(element));
  }
  /// Writes all elements of the head of a slot, rounded to the pool's dtype.
  void set(int64_t slot, int64_t head, const float* x) {
    const auto n = static_cast<size_t>(tensor.shape[3]);
    std::byte* at = &bytes[offset(slot, head, 0)];
    if (tensor.dtype == DType::kF32) {
      std::memcpy(at, x, n * sizeof(float));
      return;
    }
    for (size_t d = 0; d < n; ++d) {
      const bf16 half = to_bf16(x[d]);
      std::memcpy(at + d * sizeof half, &half, sizeof half);
    }
  }

  std::vector<std::byte> bytes;
  AnyTensor tensor;

 private:
  template <typename T>
  static T read(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
};

/// A device and its stream.
struct Cpu {
  explicit Cpu(int threads_count, cpu::MatrixPath path = cpu::best_matrix_path())
      : device(cpu::CpuDevice::create({.threads_count = threads_count, .path = path}).value()),
        stream(device->make_stream().value()) {}
  std::unique_ptr<cpu::CpuDevice> device;
  std::unique_ptr<Stream> stream;
};

/// What a machine chooses at run time: the matrix kernels and the instruction set of the vectors.
/// Calls body(matrix_path) once for every vector set of this machine with the portable matrix
/// kernels, and for the best set with each of the others.
template <typename Body>
void for_each_path(Body body) {
  const auto with = [&](int64_t target, cpu::MatrixPath path) {
    SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + cpu::matrix_path_name(path));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body(path);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  };
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  for (int64_t target : targets) with(target, cpu::MatrixPath::kPortable);
  for (cpu::MatrixPath path : cpu::usable_matrix_paths()) {
    if (path != cpu::MatrixPath::kPortable) with(targets.front(), path);
  }
}

/// The promise of every op: a row's bits do not depend on its company, its place or the threads.
/// `run(stream, rows)` computes the listed ones of `count` input rows in that order and returns
/// the Bits of each.
template <typename Run>
void expect_rows_stand_alone(int64_t count, Random& random, Run run,
                             cpu::MatrixPath path = cpu::best_matrix_path()) {
  const Rows all = all_rows(count);
  Cpu two(2, path);
  const std::vector<Bits> expected = run(*two.stream, all);
  const auto expect_same = [&](Stream& stream, const Rows& rows, const std::string& how) {
    const std::vector<Bits> bits = run(stream, rows);
    ASSERT_EQ(bits.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(bits[i] == expected[static_cast<size_t>(rows[i])]) << "row " << rows[i] << how;
    }
  };
  for (int threads : {1, 3}) {
    Cpu other(threads, path);
    expect_same(*other.stream, all, " with " + std::to_string(threads) + " threads");
  }
  Rows shuffled = all;
  random.shuffle(shuffled);
  expect_same(*two.stream, shuffled, " in another order");
  shuffled.resize((shuffled.size() + 1) / 2);
  expect_same(*two.stream, shuffled, " among fewer");
  for (int64_t r = 0; r < count; r += 1 + count / 16) expect_same(*two.stream, {r}, " alone");
}

}  // namespace tandem::ops::testing
