#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// counter[0] = value, once everything that came before on the stream is written: who reads the
/// value (with acquire) sees that, too. For threads beside the stream.
struct SignalProgressArgs {
  TensorView<uint64_t, 1> counter;  ///< [1], in memory that the host reads
  uint64_t value = 0;
};

Result<void> signal_progress(Stream& stream, const SignalProgressArgs& args);

}  // namespace tandem::ops
