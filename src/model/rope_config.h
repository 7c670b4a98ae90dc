#pragma once

#include "base/result.h"
#include "model/config.h"
#include "model/json_fields.h"

namespace tandem::model {

/// What the rotary part of a config depends on besides its own keys.
struct RopeContext {
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
};

/// The rotary part of a config: `rope_parameters` (transformers 5) or `rope_theta` with
/// `rope_scaling` (transformers 4), from the object that holds the text fields.
Result<RopeConfig> parse_rope_config(const JsonFields& fields, const RopeContext& context);

}  // namespace tandem::model
