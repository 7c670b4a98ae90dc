#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/device_flags.h"
#include "apps/memory_plan.h"
#include "base/result.h"
#include "cpu/cpu_device.h"
#include "model/model_files.h"
#include "model/qwen3.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::apps {

/// What every verb that runs a model takes.
struct LoadOptions {
  std::string model;
  uint32_t model_length_max = 0;  ///< 0: the model's own
  DeviceOptions device;
};

/// The flags of LoadOptions.
void add_load_flags(CLI::App& verb, LoadOptions& options);

/// Tokens of one sequence: what was wished for, or what the model has.
Result<uint32_t> model_length_of(const LoadOptions& options, const model::ModelConfig& config);

/// A model folder without its weights: all that is needed to check a wish before the long part.
struct ModelFolder {
  model::ModelFiles files;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  ///< null when the folder has none
  std::vector<TokenId> stop_tokens;
  std::unique_ptr<cpu::CpuDevice> device;
  DType compute = DType::kBF16;
  uint32_t model_length_max = 0;
};

/// Reads config, tokenizer and template, and makes the device.
Result<ModelFolder> open_model(const LoadOptions& options);

/// The weights on the folder's device; kResourceExhausted with a table, before anything is loaded,
/// when they and the `step` memory will not fit.
Result<std::unique_ptr<model::Qwen3>> load_weights(const ModelFolder& folder,
                                                   const engine::StepMemory::Options& step,
                                                   SizeFlags size_flags);

}  // namespace tandem::apps
