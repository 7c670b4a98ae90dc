#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/model_files.h"
#include "model/weight_parts.h"
#include "model/weight_source.h"

namespace tandem::apps {

/// What a model folder says of its tensors, without touching their bytes.
struct Checkpoint {
  struct Tensor {
    std::string name;
    std::optional<model::WeightPart> part;  ///< nullopt: a tensor that the model does not read
    model::WeightInfo info;
    size_t elements() const;
  };
  std::vector<Tensor> tensors;
  bool has_weights = false;  ///< else the tensors are those that config.json asks for
  /// Why these tensors are not the model that config.json describes.
  std::optional<Error> mismatch;

  static Result<Checkpoint> open(const model::ModelFiles& files);
};

}  // namespace tandem::apps
