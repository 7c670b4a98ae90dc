#include "apps/checkpoint.h"

#include <unordered_map>

#include "model/safetensors_source.h"
#include "model/tensor_names.h"

namespace tandem::apps {

size_t Checkpoint::Tensor::elements() const {
  size_t count = 1;
  for (int64_t dimension : info.shape) count *= static_cast<size_t>(dimension);
  return count;
}

Result<Checkpoint> Checkpoint::open(const model::ModelFiles& files) {
  const std::vector<model::ExpectedTensor> expected = model::expected_tensors(files.config);
  Checkpoint checkpoint;
  auto source = model::SafetensorsSource::open(files.folder);
  if (!source.ok()) {
    // A folder with config.json alone is enough to plan with; damaged weights are not.
    if (source.error().code != Code::kNotFound) return source.error();
    const DType dtype = files.config.checkpoint_dtype;
    for (const model::ExpectedTensor& tensor : expected) {
      checkpoint.tensors.push_back({tensor.name,
                                    tensor.part,
                                    {.dtype_name = dtype_name(dtype),
                                     .dtype = dtype,
                                     .shape = tensor.shape,
                                     .bytes = tensor.elements() * dtype_bytes(dtype),
                                     .file = {}}});
    }
    return checkpoint;
  }
  checkpoint.has_weights = true;
  std::unordered_map<std::string, model::WeightPart> parts;
  for (const model::ExpectedTensor& tensor : expected) parts.emplace(tensor.name, tensor.part);
  for (const std::string& name : source->names()) {
    const auto part = parts.find(name);
    checkpoint.tensors.push_back({name,
                                  part == parts.end() ? std::nullopt : std::optional(part->second),
                                  TANDEM_TRY(source->describe(name))});
  }
  const Result<void> fits = model::check_tensors(files.config, *source);
  if (!fits.ok()) checkpoint.mismatch = fits.error();
  return checkpoint;
}

}  // namespace tandem::apps
