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

/// Empty where the folder has none.
Result<Json> tokenizer_config(const model::ModelFiles& files) {
  if (!files.tokenizer_config) return Json::object();
  const std::string text = TANDEM_TRY(io::read_file(*files.tokenizer_config, kConfigBytesMax));
  Json config = Json::parse(text, nullptr, false);
  if (config.is_object()) return config;
  return make_error(Code::kDataLoss,
                    fmt::format("{} is not a JSON object", files.tokenizer_config->string()));
}

Result<void> load_text(ModelFolder& folder) {
  const model::ModelFiles& files = folder.files;
  if (!files.tokenizer) {
    return make_error(Code::kNotFound,
                      fmt::format("{} has no tokenizer.json", files.folder.string()));
  }
  const std::string json = TANDEM_TRY(io::read_file(*files.tokenizer, kTokenizerBytesMax));
  folder.tokenizer = TANDEM_TRY(text::Tokenizer::create(json));
  for (int32_t id : files.stop_token_ids) folder.stop_tokens.push_back(id);
  const Json config = TANDEM_TRY(tokenizer_config(files));
  Json special = Json::object();
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const std::string content = config.contains(key) ? token_content(config[key]) : "";
    if (!content.empty()) special[key] = content;
  }
  if (special.contains("eos_token")) {
    const auto eos = folder.tokenizer->added_token(special["eos_token"].get<std::string>());
    if (eos && *eos >= files.config.vocab_size) {
      return make_error(
          Code::kDataLoss,
          fmt::format("{}: eos_token is id {} of the tokenizer, but the model of "
                      "config.json has {} ids; take both from one checkpoint",
                      files.tokenizer_config->string(), *eos, files.config.vocab_size));
    }
    if (eos && std::ranges::find(folder.stop_tokens, *eos) == folder.stop_tokens.end()) {
      folder.stop_tokens.push_back(*eos);
    }
  }
  std::string source;
  if (files.chat_template) {
    source = TANDEM_TRY(io::read_file(*files.chat_template, kConfigBytesMax));
  } else if (config.contains("chat_template") && config["chat_template"].is_string()) {
    source = config["chat_template"].get<std::string>();
  }
  if (source.empty()) return {};
  folder.chat_template = TANDEM_TRY(
      text::ChatTemplate::create({.source = source, .special_tokens_json = special.dump()}));
  return {};
}

}  // namespace

void add_load_flags(CLI::App& verb, LoadOptions& options) {
  verb.add_option("model,--model", options.model, "model folder in Hugging Face layout")
      ->required();
  verb.add_option("--max-model-len", options.model_length_max,
                  "prompt and answer tokens of one sequence; 0: what the model has");
  add_device_flags(verb, options.device);
}

Result<uint32_t> model_length_of(const LoadOptions& options, const model::ModelConfig& config) {
  const auto own = static_cast<uint32_t>(config.max_position_embeddings);
  if (options.model_length_max > own) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("--max-model-len {} is more than the {} positions the model has",
                                  options.model_length_max, own));
  }
  return options.model_length_max == 0 ? own : options.model_length_max;
}

Result<ModelFolder> open_model(const LoadOptions& options) {
  ModelFolder folder;
  folder.files = TANDEM_TRY(model::ModelFiles::open(options.model));
  folder.compute = options.device.compute();
  folder.model_length_max = TANDEM_TRY(model_length_of(options, folder.files.config));
  folder.device = TANDEM_TRY(make_device(options.device));
  TANDEM_TRY(load_text(folder));
  return folder;
}

Result<std::unique_ptr<model::Qwen3>> load_weights(const ModelFolder& folder,
                                                   const engine::StepMemory::Options& step,
                                                   SizeFlags size_flags) {
  const MemoryDemand demand{.config = folder.files.config,
                            .compute = folder.compute,
                            .model_length_max = folder.model_length_max,
                            .step = step,
                            .threads_count = folder.device->threads_count(),
                            .size_flags = size_flags};
  TANDEM_TRY(require_memory(demand));
  auto source = TANDEM_TRY(model::SafetensorsSource::open(folder.files.folder));
  return model::Qwen3::load(
      *folder.device, folder.files.config, source,
      {.compute = folder.compute, .positions_max = int64_t{folder.model_length_max}});
}

}  // namespace tandem::apps
