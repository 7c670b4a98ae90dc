#include "ops/signal_progress/signal_progress.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> signal_progress_cpu(Stream& stream, const SignalProgressArgs& args);

Result<void> signal_progress(Stream& stream, const SignalProgressArgs& args) {
  TANDEM_CHECK(args.counter.data != nullptr && args.counter.shape[0] == 1, "one counter");
  return dispatch("signal_progress", stream, args, signal_progress_cpu);
}

}  // namespace tandem::ops
