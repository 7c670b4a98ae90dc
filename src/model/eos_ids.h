#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/json_fields.h"

namespace tandem::model {

/// The value of `eos_token_id` in either config file: one id, a list of ids, or nothing.
Result<std::vector<int32_t>> parse_eos_ids(const JsonFields& fields, int64_t vocab_size);

}  // namespace tandem::model
