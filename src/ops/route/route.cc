#include "ops/route/route.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> route_cpu(Stream& stream, const RouteArgs& args);

Result<void> route(Stream& stream, const RouteArgs& args) {
  TANDEM_CHECK(args.expert_ids.shape == args.weights.shape, "one weight per chosen expert");
  TANDEM_CHECK(args.logits.shape[0] == args.expert_ids.shape[0], "one row of logits per token");
  TANDEM_CHECK(args.expert_ids.shape[1] <= args.logits.shape[1], "k experts exist");
  return dispatch("route", stream, args, route_cpu);
}

}  // namespace tandem::ops
