#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "cpu/cpu_device.h"
#include "device/dtype.h"

namespace tandem::apps {

/// Which device runs a verb, and how.
struct DeviceOptions {
  std::string dtype = "bf16";
  int threads_count = 0;  ///< 0: as many as can run at once
  std::string matrix_path = "auto";

  DType compute() const { return dtype == "f32" ? DType::kF32 : DType::kBF16; }
};

/// The flags of DeviceOptions.
void add_device_flags(CLI::App& verb, DeviceOptions& options);

/// Not more threads than this process has cores: a longer team only waits for itself. A warning
/// says so.
Result<std::unique_ptr<cpu::CpuDevice>> make_device(const DeviceOptions& options);

}  // namespace tandem::apps
