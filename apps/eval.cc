// tandem eval MODEL --file F: mean nats per token of a text, or of chats and prose.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/run_scorer.h"
#include "apps/verbs.h"
#include "io/file.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::json;
constexpr size_t kFileBytesMax = 256u << 20;

struct EvalOptions {
  LoadOptions load;
  std::string file;
};

struct Group {
  std::string name;
  std::vector<std::string> texts;
};

/// validation.json holds lists of texts, chats first; any other file is one text.
std::vector<Group> groups_of(const std::string& content) {
  const Json json = Json::parse(content, nullptr, false);
  std::vector<Group> groups;
  if (json.is_object()) {
    for (const char* name : {"chat", "prose"}) {
      if (!json.contains(name) || !json[name].is_array()) continue;
      Group group{name, {}};
      for (const Json& text : json[name]) {
        if (text.is_string()) group.texts.push_back(text.get<std::string>());
      }
      groups.push_back(std::move(group));
    }
  }
  if (groups.empty()) groups.push_back({"text", {content}});
  return groups;
}

Result<void> eval(const EvalOptions& options) {
  const std::string content = TANDEM_TRY(io::read_file(options.file, kFileBytesMax));
  const ModelFolder folder = TANDEM_TRY(open_model(options.load));
  const RunningScorer running = TANDEM_TRY(start_scorer(folder));
  for (const Group& group : groups_of(content)) {
    double nats = 0.0;
    uint64_t scored = 0;
    for (const std::string& text : group.texts) {
      const std::vector<TokenId> tokens =
          folder.tokenizer->encode(text, text::ControlTokens::kRecognise);
      TANDEM_TRY(running.scorer->score(tokens, [&](size_t position, std::span<const float> logits) {
        if (position + 1 == tokens.size()) return;  // predicts what the text does not have
        nats += engine::nats_of(logits, tokens[position + 1]);
        ++scored;
      }));
    }
    fmt::print("{:<6} {:.6f} nats per token over {} tokens of {} texts\n", group.name,
               scored == 0 ? 0.0 : nats / static_cast<double>(scored), scored, group.texts.size());
  }
  return {};
}

}  // namespace

Verb add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* verb = app.add_subcommand("eval", "mean nats per token of a file");
  add_load_flags(*verb, options->load);
  verb->add_option("--file", options->file, "a text, or a validation.json")->required();
  return [options] { return eval(*options); };
}

}  // namespace tandem::apps
