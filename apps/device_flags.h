#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "cpu/cpu_device.h"

namespace tandem::apps {

/// Which device runs a verb, and how.
struct DeviceOptions {
  int threads_count = 0;  ///< 0: all cores
  std::string matrix_path = "auto";
};

void add_device_flags(CLI::App& verb, DeviceOptions& options);

Result<std::unique_ptr<cpu::CpuDevice>> make_device(const DeviceOptions& options);

}  // namespace tandem::apps
