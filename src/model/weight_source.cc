#include "model/weight_source.h"

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

}  // namespace tandem::model
