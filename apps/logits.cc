// tandem logits MODEL --tokens F --out O: logits of given tokens, and the experts they went to, as
// safetensors, for parity checks.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/run_scorer.h"
#include "apps/tokens_file.h"
#include "apps/verbs.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::json;

struct LogitsOptions {
  LoadOptions load;
  std::string tokens;
  std::string out;
};

Result<void> write_logits(const LogitsOptions& options) {
  const auto prompts = TANDEM_TRY(read_tokens_file(options.tokens));
  const ModelFolder folder = TANDEM_TRY(open_model(options.load));
  const RunningScorer running = TANDEM_TRY(start_scorer(folder));
  const auto vocabulary = static_cast<size_t>(folder.files.config.vocab_size);
  Json header;
  const auto k = static_cast<size_t>(folder.files.config.experts_per_token);
  std::vector<int64_t> moe_layers;
  for (int64_t i = 0; i < folder.files.config.layers_count; ++i) {
    if (folder.files.config.layer_is_moe[static_cast<size_t>(i)]) moe_layers.push_back(i);
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
  const auto write = [&out](auto values) {
    const auto bytes = std::as_bytes(values);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  };
  std::vector<int32_t> experts;  // [tokens, layers with experts, k] of one prompt
  for (const auto& prompt : prompts) {
    experts.clear();
    TANDEM_TRY(running.scorer->score(prompt, [&](size_t, std::span<const float> logits) {
      write(logits);
      for (int64_t layer : moe_layers) {
        const auto chosen = running.scorer->experts(layer);
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
