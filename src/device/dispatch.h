#pragma once

#include <string>

#include "base/result.h"
#include "device/device.h"
#include "device/op_times.h"

namespace tandem {

/// Runs the implementation of the stream's device: the body of every op's front function.
template <typename Args>
Result<void> dispatch(const char* op, Stream& stream, const Args& args,
                      Result<void> (*cpu)(Stream&, const Args&)) {
  if (stream.kind() == DeviceKind::kCpu) {
    if (stream.op_times() == nullptr) return cpu(stream, args);
    const auto start = std::chrono::steady_clock::now();
    const Result<void> result = cpu(stream, args);
    stream.op_times()->add(op, std::chrono::steady_clock::now() - start);
    return result;
  }
  return make_error(Code::kUnimplemented,
                    std::string(op) + " has no kernel for this device; use --device cpu");
}

}  // namespace tandem
