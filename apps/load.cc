#include "apps/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "model/safetensors_source.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::json;
constexpr size_t kTokenizerBytesMax = 256u << 20;
constexpr size_t kConfigBytesMax = 16u << 20;

/// The token a tokenizer_config names: a string, or an object with its content.
std::string token_content(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return "";
}

Result<void> load_text(LoadedModel& loaded) {
  const model::ModelFiles& files = loaded.files;
  if (!files.tokenizer) {
    return make_error(Code::kNotFound,
                      fmt::format("{} has no tokenizer.json", files.folder.string()));
  }
  const std::string json = TANDEM_TRY(io::read_file(*files.tokenizer, kTokenizerBytesMax));
  loaded.tokenizer = TANDEM_TRY(text::Tokenizer::create(json));
  for (int32_t id : files.stop_token_ids) loaded.stop_tokens.push_back(id);
  if (!files.tokenizer_config) return {};

  const std::string text = TANDEM_TRY(io::read_file(*files.tokenizer_config, kConfigBytesMax));
  const Json config = Json::parse(text, nullptr, false);
  if (!config.is_object()) {
    return make_error(Code::kDataLoss,
                      fmt::format("{} is not a JSON object", files.tokenizer_config->string()));
  }
  Json special = Json::object();
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const std::string content = config.contains(key) ? token_content(config[key]) : "";
    if (!content.empty()) special[key] = content;
  }
  if (special.contains("eos_token")) {
    const auto eos = loaded.tokenizer->added_token(special["eos_token"].get<std::string>());
    if (eos && std::ranges::find(loaded.stop_tokens, *eos) == loaded.stop_tokens.end()) {
      loaded.stop_tokens.push_back(*eos);
    }
  }
  std::string source;
  if (files.chat_template) {
    source = TANDEM_TRY(io::read_file(*files.chat_template, kConfigBytesMax));
  } else if (config.contains("chat_template") && config["chat_template"].is_string()) {
    source = config["chat_template"].get<std::string>();
  }
  if (source.empty()) return {};
  loaded.chat_template = TANDEM_TRY(
      text::ChatTemplate::create({.source = source, .special_tokens_json = special.dump()}));
  return {};
}

}  // namespace

Result<LoadedModel> load_model(const LoadOptions& options) {
  LoadedModel loaded;
  loaded.files = TANDEM_TRY(model::ModelFiles::open(options.model));
  TANDEM_TRY(load_text(loaded));
  loaded.compute = options.dtype == "f32" ? DType::kF32 : DType::kBF16;
  const auto own = static_cast<uint32_t>(loaded.files.config.max_position_embeddings);
  if (options.model_length_max > own) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("--max-model-len {} is more than the {} positions the model has",
                                  options.model_length_max, own));
  }
  loaded.model_length_max = options.model_length_max == 0 ? own : options.model_length_max;
  loaded.device = TANDEM_TRY(cpu::CpuDevice::create({.threads_count = options.threads_count}));
  auto source = TANDEM_TRY(model::SafetensorsSource::open(loaded.files.folder));
  loaded.model = TANDEM_TRY(model::Qwen3::load(
      *loaded.device, loaded.files.config, source,
      {.compute = loaded.compute, .positions_max = int64_t{loaded.model_length_max}}));
  return loaded;
}

}  // namespace tandem::apps
