#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/dtype.h"
#include "model/config.h"
#include "model/tensor_names.h"
#include "model/weight_source.h"

namespace tandem::model {

/// The tensors of a model without a checkpoint, for benchmarks: random bf16, of the size that a
/// trained model's have, so that activations neither vanish nor overflow. A value depends on the
/// seed, its tensor's name and its place only. A tensor is made when it is asked for and owned
/// until it is released.
class RandomSource final : public WeightSource {
 public:
  RandomSource(const ModelConfig& config, uint64_t seed);

  std::vector<std::string> names() const override;
  Result<WeightView> tensor(const std::string& name) override;
  Result<WeightInfo> describe(const std::string& name) override;
  void release(const std::string& name) override { made_.erase(name); }

 private:
  Result<const ExpectedTensor*> find(const std::string& name) const;

  const uint64_t seed_;
  std::vector<ExpectedTensor> tensors_;
  std::unordered_map<std::string, size_t> places_;  // name -> index into tensors_
  std::unordered_map<std::string, std::unique_ptr<bf16[]>> made_;
};

}  // namespace tandem::model
