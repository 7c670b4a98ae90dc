#pragma once

#include <string>

#include "base/result.h"
#include "device/device.h"

namespace tandem {

/// Runs the implementation of the stream's device: the body of every op's front function.
template <typename Args>
Result<void> dispatch(const char* op, Stream& stream, const Args& args,
                      Result<void> (*cpu)(Stream&, const Args&)) {
  if (stream.kind() == DeviceKind::kCpu) return cpu(stream, args);
  return make_error(Code::kUnimplemented,
                    std::string(op) + " has no kernel for this device; use --device cpu");
}

}  // namespace tandem
