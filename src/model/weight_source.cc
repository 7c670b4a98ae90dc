#include "model/weight_source.h"

#include "base/check.h"

namespace tandem::model {

Result<WeightInfo> WeightSource::describe(const std::string& name) {
  const WeightView view = TANDEM_TRY(tensor(name));
  release(name);
  return WeightInfo{.dtype_name = dtype_name(view.dtype),
                    .dtype = view.dtype,
                    .shape = view.shape,
                    .bytes = view.bytes.size(),
                    .file = {}};
}

WeightView cut(const WeightView& whole, const WeightSlice& part) {
  TANDEM_CHECK(part.rows.first >= 0 && part.rows.end <= whole.shape[0], "rows of the tensor");
  int64_t row_elements = 1;
  for (size_t d = 1; d < whole.shape.size(); ++d) row_elements *= whole.shape[d];
  WeightView view = whole;
  view.shape[0] = part.rows.count();
  int64_t first = part.rows.first * row_elements;
  int64_t end = part.rows.end * row_elements;
  if (part.columns) {
    TANDEM_CHECK(whole.shape.size() == 2, "columns of a matrix");
    TANDEM_CHECK(part.columns->first >= 0 && part.columns->end <= row_elements, "of the matrix");
    view.shape[1] = part.columns->count();
    view.row_stride = row_elements;
    end += part.columns->end - row_elements;
    first += part.columns->first;
  }
  const auto element_bytes = static_cast<int64_t>(dtype_bytes(whole.dtype));
  view.bytes = whole.bytes.subspan(static_cast<size_t>(first * element_bytes),
                                   static_cast<size_t>((end - first) * element_bytes));
  return view;
}

Result<WeightView> WeightSource::slice(const std::string& name, const WeightSlice& part) {
  return cut(TANDEM_TRY(tensor(name)), part);
}

}  // namespace tandem::model
