#pragma once

#include <filesystem>
#include <string>

#include "model/weight_source.h"

namespace tandem::apps {

/// A short text that tells one checkpoint from another: a hash of config.json, of every tensor's
/// name, type and shape, and of the bytes of one row of up to a thousand tensors. It reads little,
/// so it is equal for two checkpoints whose only difference is in a few damaged bytes.
Result<std::string> model_fingerprint(const std::filesystem::path& folder,
                                      model::WeightSource& weights);

}  // namespace tandem::apps
