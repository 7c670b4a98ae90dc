#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
  std::string dtype = "bf16";
  uint32_t model_length_max = 0;  ///< 0: the model's own
  int threads_count = 0;          ///< 0: all cores
};

/// A model folder ready to run: files, text parts, weights on their device.
struct LoadedModel {
  model::ModelFiles files;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  ///< null when the folder has none
  std::vector<TokenId> stop_tokens;
  std::unique_ptr<cpu::CpuDevice> device;
  std::unique_ptr<model::Qwen3> model;
  DType compute = DType::kBF16;
  uint32_t model_length_max = 0;
};

Result<LoadedModel> load_model(const LoadOptions& options);

}  // namespace tandem::apps
