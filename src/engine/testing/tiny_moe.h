#pragma once

#include <memory>

#include "cpu/cpu_device.h"
#include "engine/limits.h"
#include "model/model_files.h"
#include "model/qwen3.h"
#include "model/safetensors_source.h"

namespace tandem::engine::testing {

inline constexpr uint32_t kTinyMoeVocabulary = 4096;

/// The trained models/tiny-moe on two CPU threads, for tests that need a real model. The device
/// outlives the model.
struct TinyMoe {
  std::unique_ptr<cpu::CpuDevice> device;
  std::unique_ptr<model::Qwen3> model;
};

inline Result<TinyMoe> load_tiny_moe(DType compute, uint32_t positions_max) {
  TinyMoe tiny;
  const auto files = TANDEM_TRY(model::ModelFiles::open("models/tiny-moe"));
  auto source = TANDEM_TRY(model::SafetensorsSource::open("models/tiny-moe"));
  tiny.device = TANDEM_TRY(cpu::CpuDevice::create({.threads_count = 2}));
  tiny.model =
      TANDEM_TRY(model::Qwen3::load(*tiny.device, files.config, source,
                                    {.compute = compute, .positions_max = int64_t{positions_max}}));
  return tiny;
}

}  // namespace tandem::engine::testing
