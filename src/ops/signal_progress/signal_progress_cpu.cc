// Contract   counter[0] = value with release, see signal_progress.h
// Shapes     one counter
// Work       one store
// Roof       none: a cache line goes to the reader's core and back
// Plan       a CPU stream has done all before when it gets here; its team's writes happened before
//            the end of their loop
// Measured   not alone; once per layer
// Reference  signal_progress_test.cc
#include <atomic>

#include "ops/signal_progress/signal_progress.h"

namespace tandem::ops {

Result<void> signal_progress_cpu(Stream&, const SignalProgressArgs& args) {
  std::atomic_ref(args.counter[0]).store(args.value, std::memory_order_release);
  return {};
}

}  // namespace tandem::ops
