#include "ops/linear/packed_linear.h"

#include <cstring>

#include "ops/linear/panel_layout.h"

namespace tandem::ops {
size_t PackedLinear::bytes_needed(const LinearSpec& spec) {
  return static_cast<size_t>(spec.stack * PanelLayout(spec).matrix_bytes());
}

Result<PackedLinear> PackedLinear::create(Device& device, const LinearSpec& spec) {
  TANDEM_CHECK(spec.stack > 0 && spec.out_features > 0 && spec.in_features > 0, "empty weight");
  TANDEM_CHECK(spec.dtype == DType::kBF16 || spec.dtype == DType::kF32, "weights are bf16 or f32");
  TANDEM_CHECK(spec.partition % 2 == 0, "a cut would split a pair");
  PackedLinear packed;
  packed.spec_ = spec;
  packed.storage_ = TANDEM_TRY(device.allocate(bytes_needed(spec)));
  std::memset(packed.storage_.data(), 0, packed.storage_.bytes());
  return packed;
}

void PackedLinear::copy_matrix(int64_t index, const PackedLinear& source, int64_t source_index) {
  const auto bytes = static_cast<size_t>(PanelLayout(spec_).matrix_bytes());
  TANDEM_CHECK(index >= 0 && index < spec_.stack, "matrix outside the stack");
  TANDEM_CHECK(source_index >= 0 && source_index < source.spec_.stack, "matrix outside the source");
  TANDEM_CHECK(source.spec_.dtype == spec_.dtype, "matrices of one type");
  TANDEM_CHECK(static_cast<size_t>(PanelLayout(source.spec_).matrix_bytes()) == bytes,
               "matrices of one shape");
  std::memcpy(storage_.as<std::byte>() + static_cast<size_t>(index) * bytes,
              source.storage_.as<std::byte>() + static_cast<size_t>(source_index) * bytes, bytes);
}

void PackedLinear::set_rows(int64_t index, int64_t first_row, const LinearSource& source) {
  const PanelLayout layout(spec_);
  TANDEM_CHECK(index >= 0 && index < spec_.stack, "matrix outside the stack");
  TANDEM_CHECK(first_row >= 0 && first_row + source.rows <= spec_.out_features,
               "rows outside the matrix");
  std::byte* matrix = storage_.as<std::byte>() + index * layout.matrix_bytes();
  const int64_t row_stride = source.row_stride == 0 ? spec_.in_features : source.row_stride;
  for (int64_t row = 0; row < source.rows; ++row) {
    const int64_t target = first_row + row;
    std::byte* panel = matrix + target / PanelLayout::kColumns * layout.panel_bytes();
    const int64_t column = target % PanelLayout::kColumns;
    for (int64_t k = 0; k < spec_.in_features; ++k) {
      const float x = load_float(source.data, source.dtype, row * row_stride + k);
      if (spec_.dtype == DType::kF32) {
        reinterpret_cast<float*>(panel)[layout.element(column, k)] = x;
      } else {
        reinterpret_cast<bf16*>(panel)[layout.element(column, k)] = to_bf16(x);
      }
    }
  }
}

}  // namespace tandem::ops
