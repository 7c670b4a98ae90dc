#include "model/eos_ids.h"

namespace tandem::model {

Result<std::vector<int32_t>> parse_eos_ids(const JsonFields& fields, int64_t vocab_size) {
  const JsonFields::Range<int64_t> range{0, vocab_size - 1};
  const Json* value = fields.find("eos_token_id");
  std::vector<int64_t> ids;
  if (value != nullptr && value->is_array()) {
    ids = *TANDEM_TRY(fields.integers("eos_token_id", range));
  } else if (value != nullptr) {
    ids.push_back(*TANDEM_TRY(fields.integer("eos_token_id", range)));
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

}  // namespace tandem::model
