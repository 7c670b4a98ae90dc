#include "model/random_source.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace tandem::model {
namespace {

/// Mixes 64 bits so that neighbours in have nothing in common out (the finaliser of SplitMix64,
/// Steele, Lea and Flood, OOPSLA 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t key = mix(seed);
  for (unsigned char c : name) key = mix(key + c + 1);
  return key;
}

/// Fills with `center` plus uniform values of the given standard deviation.
void fill_uniform(std::span<bf16> values, uint64_t key, float center, float deviation) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // odd: the counter visits every 64-bit value
  // A uniform value of [-a, a] has deviation a / sqrt(3). One draw gives four values of 16 bits,
  // twice the precision of a bf16.
  const float unit = deviation * std::sqrt(3.0f) / 32768.0f;
  const auto value_of = [&](uint64_t bits) {
    return to_bf16(center + (static_cast<float>(bits & 0xffff) - 32767.5f) * unit);
  };
  uint64_t counter = key;
  for (size_t i = 0; i < values.size(); i += 4, counter += kStep) {
    uint64_t draw = mix(counter);
    for (bf16& value : values.subspan(i, std::min<size_t>(4, values.size() - i))) {
      value = value_of(draw);
      draw >>= 16;
    }
  }
}

}  // namespace

RandomSource::RandomSource(const ModelConfig& config, uint64_t seed)
    : seed_(seed), tensors_(expected_tensors(config)) {
  for (size_t i = 0; i < tensors_.size(); ++i) places_.emplace(tensors_[i].name, i);
}

std::vector<std::string> RandomSource::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const ExpectedTensor& tensor : tensors_) names.push_back(tensor.name);
  return names;
}

Result<WeightView> RandomSource::tensor(const std::string& name) {
  const ExpectedTensor& expected = *TANDEM_TRY(find(name));
  size_t count = 1;
  for (int64_t dimension : expected.shape) count *= static_cast<size_t>(dimension);

  std::unique_ptr<bf16[]>& values = made_[name];
  if (values == nullptr) {
    values.reset(new (std::nothrow) bf16[count]);
    if (values == nullptr) {
      made_.erase(name);
      return make_error(Code::kResourceExhausted, "no memory for the " +
                                                      std::to_string(count * sizeof(bf16)) +
                                                      " bytes of tensor \"" + name + "\"");
    }
    // Norm weights scatter around 1; a row of a matrix has norm 1, so that outputs are as large as
    // inputs.
    const bool is_norm = expected.shape.size() == 1;
    const float deviation =
        is_norm ? 0.1f : 1.0f / std::sqrt(static_cast<float>(expected.shape.back()));
    fill_uniform({values.get(), count}, key_of(seed_, name), is_norm ? 1.0f : 0.0f, deviation);
  }
  return WeightView{.dtype = DType::kBF16,
                    .shape = expected.shape,
                    .bytes = std::as_bytes(std::span(values.get(), count))};
}

Result<WeightInfo> RandomSource::describe(const std::string& name) {
  const ExpectedTensor& expected = *TANDEM_TRY(find(name));
  return WeightInfo{.dtype_name = dtype_name(DType::kBF16),
                    .dtype = DType::kBF16,
                    .shape = expected.shape,
                    .bytes = expected.elements() * dtype_bytes(DType::kBF16),
                    .file = {}};
}

Result<const ExpectedTensor*> RandomSource::find(const std::string& name) const {
  const auto place = places_.find(name);
  if (place != places_.end()) return &tensors_[place->second];
  return make_error(Code::kNotFound, "the model has no tensor \"" + name + "\"");
}

}  // namespace tandem::model
