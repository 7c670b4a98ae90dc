// tandem logits MODEL --tokens F --out O: logits of given tokens as safetensors, for parity checks.
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
  size_t end = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t start = end;
    end += prompts[i].size() * vocabulary * sizeof(float);
    header[fmt::format("logits.{}", i)] = {{"dtype", "F32"},
                                           {"shape", {prompts[i].size(), vocabulary}},
                                           {"data_offsets", {start, end}}};
  }
  std::ofstream out(options.out, std::ios::binary);
  const std::string text = header.dump();
  const uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& prompt : prompts) {
    TANDEM_TRY(running.scorer->score(prompt, [&](size_t, std::span<const float> logits) {
      out.write(reinterpret_cast<const char*>(logits.data()),
                static_cast<std::streamsize>(logits.size_bytes()));
    }));
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
  verb->add_option("--out", options->out, "file to write: logits.0, logits.1, ...")->required();
  return [options] { return write_logits(*options); };
}

}  // namespace tandem::apps
