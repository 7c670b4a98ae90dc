#include "comm/expert_select/expert_select.h"

#include "device/dispatch.h"

namespace tandem::comm {

Result<void> expert_select_cpu(Stream& stream, const ExpertSelectArgs& args);

Result<void> expert_select(Stream& stream, const ExpertSelectArgs& args) {
  TANDEM_CHECK(args.expert_offsets.size() >= 2, "a rank has an expert");
  TANDEM_CHECK(args.row_of.shape == args.expert_ids.shape, "one row per pair");
  TANDEM_CHECK(args.row_source.size() >= args.expert_ids.size(), "all pairs may be this rank's");
  return dispatch("expert_select", stream, args, expert_select_cpu);
}

}  // namespace tandem::comm
