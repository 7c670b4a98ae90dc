#include "ops/sample/sample.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> sample_cpu(Stream& stream, const SampleArgs& args);

Result<void> sample(Stream& stream, const SampleArgs& args) {
  TANDEM_CHECK(args.rows.size() == args.out.size(), "one result per row");
  TANDEM_CHECK(args.logits.shape[0] == static_cast<int64_t>(args.rows.size()),
               "one row of logits per row");
  return dispatch("sample", stream, args, sample_cpu);
}

}  // namespace tandem::ops
