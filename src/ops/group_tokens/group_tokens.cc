#include "ops/group_tokens/group_tokens.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> group_tokens_cpu(Stream& stream, const GroupTokensArgs& args);

Result<void> group_tokens(Stream& stream, const GroupTokensArgs& args) {
  TANDEM_CHECK(args.expert_ids.shape == args.row_of.shape, "one row per pair");
  TANDEM_CHECK(args.row_source.shape[0] == args.expert_ids.size(), "one source per pair");
  return dispatch("group_tokens", stream, args, group_tokens_cpu);
}

}  // namespace tandem::ops
