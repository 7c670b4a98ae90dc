#pragma once

#include <memory>
#include <string>

#include "apps/device_flags.h"
#include "base/result.h"
#include "cpu/cpu_device.h"
#include "model/model_files.h"
#include "model/qwen3.h"

namespace tandem::apps {

/// A model without its text parts. A folder that holds a config.json and no weights runs with
/// random ones, so that a shape can be measured before anyone has trained it.
struct BenchModel {
  struct Options {
    std::string folder;
    DeviceOptions device;
    int64_t positions_max = 0;  ///< longest sequence
  };
  static Result<BenchModel> load(const Options& options);

  model::ModelFiles files;
  bool random_weights = false;
  DType dtype = DType::kBF16;
  std::unique_ptr<cpu::CpuDevice> device;
  std::unique_ptr<model::Qwen3> model;
};

}  // namespace tandem::apps
