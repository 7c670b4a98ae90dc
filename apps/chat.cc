// tandem chat MODEL: a conversation in the terminal, or of the lines of a pipe.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/answer_stream.h"
#include "apps/chat_prompt.h"
#include "apps/run_engine.h"
#include "apps/run_requests.h"
#include "apps/sampling_flags.h"
#include "apps/terminal.h"
#include "apps/verbs.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::json;

struct ChatOptions {
  LoadOptions load;
  SamplingOptions sampling;
  std::string system;
  bool no_thinking = false;
};

/// What was said so far, and the engine that goes on with it.
class Conversation {
 public:
  Conversation(const ChatOptions& options, const ModelFolder& folder, engine::Engine& engine,
               Terminal& terminal)
      : options_(options), folder_(folder), engine_(engine), terminal_(terminal) {
    reset();
  }

  void reset() {
    messages_ = Json::array();
    if (!options_.system.empty()) add("system", options_.system);
  }

  /// Streams the answer; Ctrl-C cuts it, and what came stays in the conversation. After an error
  /// the conversation is what it was.
  Result<void> say(const std::string& text) {
    add("user", text);
    AnswerStream answer(*folder_.tokenizer);
    const Result<void> answered = run(answer);
    if (!answered.ok()) {
      messages_.erase(messages_.size() - 1);
      return answered;
    }
    add("assistant", answer.text());
    return {};
  }

 private:
  void add(const char* role, const std::string& text) {
    messages_.push_back({{"role", role}, {"content", text}});
  }

  Result<void> run(AnswerStream& answer) {
    engine::Request request =
        request_of(options_.sampling, folder_,
                   TANDEM_TRY(encode_chat(folder_, messages_, !options_.no_thinking)));
    request.id = RequestId{requests_made_++};
    std::vector<engine::Request> requests;
    requests.push_back(std::move(request));
    return run_requests(engine_, std::move(requests),
                        {.on_event = [&](engine::Event& event) { answer.push(event); },
                         .interrupted = [&] { return terminal_.take_interrupt(); }});
  }

  const ChatOptions& options_;
  const ModelFolder& folder_;
  engine::Engine& engine_;
  Terminal& terminal_;
  Json messages_;  // as in the OpenAI API
  uint64_t requests_made_ = 0;
};

Result<void> chat(const ChatOptions& options) {
  const ModelFolder folder = TANDEM_TRY(open_model(options.load));
  // Asked before the weights: does the folder have a template at all?
  TANDEM_TRY(encode_chat(folder, Json::array({{{"role", "user"}, {"content", "?"}}}),
                         !options.no_thinking));
  const engine::Limits limits = TANDEM_TRY(limits_of({.sequences_max = 1}, folder));
  const RunningEngine running = TANDEM_TRY(start_engine(folder, limits, SizeFlags::kLength));
  Terminal terminal = TANDEM_TRY(Terminal::create());
  if (terminal.is_interactive()) {
    fmt::print("{} on {}. /reset starts anew; /exit, Ctrl-C or Ctrl-D leaves.\n",
               options.load.model, folder.device->describe());
  }
  Conversation conversation(options, folder, *running.engine, terminal);
  for (;;) {
    const std::optional<std::string> line = TANDEM_TRY(terminal.read_line("> "));
    if (!line || *line == "/exit") return {};
    if (*line == "/reset") {
      conversation.reset();
    } else if (!line->empty()) {
      const Result<void> said = conversation.say(*line);
      terminal.take_interrupt();  // one that came too late to cut the answer is not for the prompt
      if (!said.ok()) {
        fmt::print(stderr, "tandem chat: {} (/reset starts anew)\n", said.error().what);
      }
    }
  }
}

}  // namespace

Verb add_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* verb = app.add_subcommand("chat", "talk to a model in the terminal");
  add_load_flags(*verb, options->load);
  verb->add_option("--system", options->system, "what the model is told first");
  verb->add_flag("--no-thinking", options->no_thinking, "answer at once");
  add_sampling_flags(*verb, options->sampling);
  return [options] { return chat(*options); };
}

}  // namespace tandem::apps
