// tandem logits MODEL --tokens F --out O: logits of given tokens, and the experts they went to, as
// safetensors, for parity checks.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/verbs.h"
#include "engine/scorer.h"
#include "io/file.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::json;
constexpr size_t kFileBytesMax = 64u << 20;

struct LogitsOptions {
  LoadOptions load;
  std::string tokens;
  std::string out;
};

Result<std::vector<std::vector<TokenId>>> prompts_of(const std::string& file) {
  const Json json = Json::parse(TANDEM_TRY(io::read_file(file, kFileBytesMax)), nullptr, false);
  const auto wrong = make_error(
      Code::kInvalidArgument,
      fmt::format("{}: expected {{\"prompts\": [[token ids], ...]}} with integer ids", file));
  if (!json.is_object() || !json.contains("prompts") || !json["prompts"].is_array()) return wrong;
  std::vector<std::vector<TokenId>> prompts;
  for (const Json& prompt : json["prompts"]) {
    if (!prompt.is_array()) return wrong;
    prompts.emplace_back();
    for (const Json& id : prompt) {
      // Read wide: a huge id must be refused, not cut to one that exists.
      if (!id.is_number_integer() || id != Json(id.get<TokenId>())) return wrong;
      prompts.back().push_back(id.get<TokenId>());
    }
  }
  return prompts;
}

Result<void> write_logits(const LogitsOptions& options) {
  const auto prompts = TANDEM_TRY(prompts_of(options.tokens));
  const LoadedModel loaded = TANDEM_TRY(load_model(options.load));
  const auto vocabulary = static_cast<size_t>(loaded.files.config.vocab_size);
  Json header;
  const auto k = static_cast<size_t>(loaded.files.config.experts_per_token);
  std::vector<int64_t> moe_layers;
  for (int64_t i = 0; i < loaded.files.config.layers_count; ++i) {
    if (loaded.files.config.layer_is_moe[static_cast<size_t>(i)]) moe_layers.push_back(i);
  }
  size_t end = 0;
  const auto declare = [&](std::string name, const char* dtype, std::vector<size_t> shape) {
    const size_t start = end;
    size_t bytes = 4;  // F32 or I32
    for (size_t dimension : shape) bytes *= dimension;
    end += bytes;
    header[std::move(name)] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {start, end}}};
  };
  for (size_t i = 0; i < prompts.size(); ++i) {
    declare(fmt::format("logits.{}", i), "F32", {prompts[i].size(), vocabulary});
    declare(fmt::format("experts.{}", i), "I32", {prompts[i].size(), moe_layers.size(), k});
  }
  std::ofstream out(options.out, std::ios::binary);
  const std::string text = header.dump();
  const uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  auto scorer = TANDEM_TRY(engine::Scorer::create(
      *loaded.device, *loaded.model,
      {.model_length_max = loaded.model_length_max, .kv_dtype = loaded.compute}));
  const auto write = [&out](auto values) {
    const auto bytes = std::as_bytes(values);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  };
  std::vector<int32_t> experts;  // [tokens, layers with experts, k] of one prompt
  for (const auto& prompt : prompts) {
    experts.clear();
    TANDEM_TRY(scorer->score(prompt, [&](size_t, std::span<const float> logits) {
      write(logits);
      for (int64_t layer : moe_layers) {
        const auto chosen = scorer->experts(layer);
        experts.insert(experts.end(), chosen.begin(), chosen.end());
      }
    }));
    write(std::span<const int32_t>(experts));
  }
  out.close();
  if (!out) {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} could not be written; check the path and the disk", options.out));
  }
  return {};
}

}  // namespace

Verb add_logits(CLI::App& app) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* verb = app.add_subcommand("logits", "write the logits of given tokens as safetensors");
  add_load_flags(*verb, options->load);
  verb->add_option("--tokens", options->tokens, "JSON: {\"prompts\": [[ids], ...]}")->required();
  verb->add_option("--out", options->out, "file to write: logits.0, experts.0, ...")->required();
  return [options] { return write_logits(*options); };
}

}  // namespace tandem::apps
