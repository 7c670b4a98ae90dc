#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weight_source.h"

namespace tandem::parity {

/// The tensors of another source, which has one per expert, in the fused layout.
class FusedSource final : public model::WeightSource {
 public:
  /// `source` must outlive this.
  FusedSource(const model::ModelConfig& config, model::WeightSource& source);

  std::vector<std::string> names() const override;
  Result<model::WeightView> tensor(const std::string& name) override;

 private:
  struct Fused {
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  void fuse(const std::string& name, const std::vector<std::string>& parts,
            std::vector<int64_t> shape);

  model::WeightSource& source_;
  std::map<std::string, Fused> fused_;
};

}  // namespace tandem::parity
