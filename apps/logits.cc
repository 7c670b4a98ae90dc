// tandem logits MODEL --tokens F --out O: logits of given tokens, and the experts they went to, as
// safetensors, for parity checks.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <utility>

#include "apps/output_file.h"
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

/// The head of a safetensors file whose tensors are told one after another, in the order in which
/// their bytes will follow.
class SafetensorsHead {
 public:
  /// `dtype` is "F32" or "I32".
  void declare(std::string name, const char* dtype, const std::vector<size_t>& shape) {
    const size_t start = end_;
    size_t bytes = 4;
    for (size_t dimension : shape) bytes *= dimension;
    end_ += bytes;
    json_[std::move(name)] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {start, end_}}};
  }
  void write_to(std::ostream& out) const {
    const std::string text = json_.dump();
    const uint64_t length = text.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
  }

 private:
  Json json_ = Json::object();
  size_t end_ = 0;
};

template <typename T>
void write_values(std::ostream& out, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

Result<void> write_logits(const LogitsOptions& options) {
  const auto prompts = TANDEM_TRY(read_tokens_file(options.tokens));
  const ModelFolder folder = TANDEM_TRY(open_model(options.load));
  const RunningScorer running = TANDEM_TRY(start_scorer(folder));
  OutputFile file = TANDEM_TRY(OutputFile::create(options.out));
  const model::ModelConfig& config = folder.files.config;
  const auto vocabulary = static_cast<size_t>(config.vocab_size);
  const auto k = static_cast<size_t>(config.experts_per_token);
  std::vector<int64_t> moe_layers;
  for (int64_t i = 0; i < config.layers_count; ++i) {
    if (config.layer_is_moe[static_cast<size_t>(i)]) moe_layers.push_back(i);
  }
  SafetensorsHead head;
  for (size_t i = 0; i < prompts.size(); ++i) {
    head.declare(fmt::format("logits.{}", i), "F32", {prompts[i].size(), vocabulary});
    head.declare(fmt::format("experts.{}", i), "I32", {prompts[i].size(), moe_layers.size(), k});
  }
  head.write_to(file.stream());
  std::vector<int32_t> experts;  // [tokens, layers with experts, k] of one prompt
  for (const auto& prompt : prompts) {
    experts.clear();
    TANDEM_TRY(running.scorer->score(prompt, [&](size_t, std::span<const float> logits) {
      write_values(file.stream(), logits);
      for (int64_t layer : moe_layers) {
        const auto chosen = running.scorer->experts(layer);
        experts.insert(experts.end(), chosen.begin(), chosen.end());
      }
    }));
    write_values(file.stream(), std::span<const int32_t>(experts));
  }
  return file.finish();
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
