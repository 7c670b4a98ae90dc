// tandem generate MODEL: answers to prompts, all at once through one engine.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "apps/answer_stream.h"
#include "apps/chat_prompt.h"
#include "apps/output_file.h"
#include "apps/run_engine.h"
#include "apps/run_requests.h"
#include "apps/sampling_flags.h"
#include "apps/tokens_file.h"
#include "apps/usage.h"
#include "apps/verbs.h"
#include "engine/validate.h"
#include "io/file.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateOptions {
  LoadOptions load;
  EngineOptions engine;
  SamplingOptions sampling;
  std::optional<std::string> prompt;
  std::string prompts_file;
  std::string tokens_file;
  bool chat = false;
  bool no_thinking = false;
  bool ignore_eos = false;
  std::string json;
};

struct Output {
  size_t prompt_tokens = 0;
  std::vector<TokenId> tokens;
  engine::FinishReason finish = engine::FinishReason::kCancelled;

  /// Without the token that ended it.
  std::string text(const text::Tokenizer& tokenizer) const {
    std::span<const TokenId> shown(tokens);
    if (finish == engine::FinishReason::kStop) shown = shown.first(shown.size() - 1);
    return tokenizer.decode(shown, true);
  }
  const char* finish_reason() const {
    return finish == engine::FinishReason::kStop ? "stop" : "length";
  }
};

Error wrong(std::string what) {
  return make_error(Code::kInvalidArgument, std::move(what));
}

/// Texts of the command line or of a file's lines.
Result<std::vector<std::string>> read_texts(const GenerateOptions& options) {
  constexpr size_t kFileBytesMax = 64u << 20;
  if (options.prompts_file.empty()) return std::vector{*options.prompt};
  std::istringstream lines(TANDEM_TRY(io::read_file(options.prompts_file, kFileBytesMax)));
  std::vector<std::string> texts;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) texts.push_back(std::move(line));
  }
  return texts;
}

Result<std::vector<std::vector<TokenId>>> read_prompts(const GenerateOptions& options,
                                                       const ModelFolder& folder) {
  if (!options.tokens_file.empty()) return read_tokens_file(options.tokens_file);
  std::vector<std::vector<TokenId>> prompts;
  for (const std::string& text : TANDEM_TRY(read_texts(options))) {
    if (options.chat) {
      const auto messages = nlohmann::json::array({{{"role", "user"}, {"content", text}}});
      prompts.push_back(TANDEM_TRY(encode_chat(folder, messages, !options.no_thinking)));
    } else {
      prompts.push_back(folder.tokenizer->encode(text, text::ControlTokens::kRecognise));
    }
  }
  return prompts;
}

Result<void> check_sources(const GenerateOptions& options) {
  if (options.prompt && options.prompt->empty()) {
    return wrong("PROMPT is empty; there is nothing to go on from");
  }
  const int sources = (!options.prompt ? 0 : 1) + (options.prompts_file.empty() ? 0 : 1) +
                      (options.tokens_file.empty() ? 0 : 1);
  if (sources != 1) return wrong("give one of PROMPT, --prompts FILE and --tokens FILE");
  if (options.chat && !options.tokens_file.empty()) {
    return wrong("--chat is for texts; the ids of --tokens are used as they are");
  }
  if (options.no_thinking && !options.chat) return wrong("--no-thinking needs --chat");
  return {};
}

/// Every prompt as a request that the engine will accept. Its id is its index.
Result<std::vector<engine::Request>> make_requests(const GenerateOptions& options,
                                                   const ModelFolder& folder,
                                                   engine::Limits& limits) {
  std::vector<engine::Request> requests;
  auto prompts = TANDEM_TRY(read_prompts(options, folder));
  for (size_t i = 0; i < prompts.size(); ++i) {
    engine::Request request = request_of(options.sampling, folder, std::move(prompts[i]));
    request.id = RequestId{i};
    if (options.ignore_eos) request.stop_tokens.clear();
    const Result<void> valid = engine::validate(request, limits);
    if (!valid.ok() && prompts.size() == 1) return valid.error();
    if (!valid.ok()) return with_context(valid.error(), fmt::format("prompts[{}]", i));
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return wrong("there is no prompt in the file");
  // Nothing else is queued here, so the queue is as long as the list.
  limits.queue_requests_max = static_cast<uint32_t>(requests.size());
  limits.queue_tokens_max = 0;
  for (const engine::Request& request : requests) limits.queue_tokens_max += request.prompt.size();
  return requests;
}

std::string json_text(const std::vector<Output>& outputs, const text::Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const Output& output : outputs) {
    list.push_back({{"prompt_tokens", output.prompt_tokens},
                    {"tokens", output.tokens},
                    {"text", output.text(tokenizer)},
                    {"finish_reason", output.finish_reason()}});
  }
  return Json{{"outputs", std::move(list)}}.dump(1) + "\n";
}

Result<std::vector<Output>> run(const ModelFolder& folder, const engine::Limits& limits,
                                std::vector<engine::Request> requests, AnswerStream* stream) {
  const RunningEngine running =
      TANDEM_TRY(start_engine(folder, limits, SizeFlags::kLengthAndCache));
  std::vector<Output> outputs(requests.size());
  const auto on_event = [&](engine::Event& event) {
    Output& output = outputs[event.id.value];
    output.prompt_tokens = event.prompt_tokens;
    for (const engine::GeneratedToken& token : event.tokens) output.tokens.push_back(token.token);
    if (event.finish) output.finish = *event.finish;
    if (stream != nullptr) stream->push(event);
  };
  TANDEM_TRY(run_requests(*running.engine, std::move(requests),
                          {.on_event = on_event, .interrupted = {}}));
  return outputs;
}

Result<void> generate(const GenerateOptions& options) {
  const ModelFolder folder = TANDEM_TRY(open_model(options.load));
  engine::Limits limits = TANDEM_TRY(limits_of(options.engine, folder));
  auto requests = TANDEM_TRY(make_requests(options, folder, limits));
  std::optional<OutputFile> file;
  if (!options.json.empty() && options.json != "-") {
    file = TANDEM_TRY(OutputFile::create(options.json));
  }

  AnswerStream stream(*folder.tokenizer);
  const bool streams = options.json.empty() && requests.size() == 1;
  const std::vector<Output> outputs =
      TANDEM_TRY(run(folder, limits, std::move(requests), streams ? &stream : nullptr));
  if (file) {
    file->stream() << json_text(outputs, *folder.tokenizer);
    return file->finish();
  }
  if (!options.json.empty()) {
    fmt::print("{}", json_text(outputs, *folder.tokenizer));
  } else if (!streams) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      fmt::print("--- {} of {}\n{}\n", i + 1, outputs.size(), outputs[i].text(*folder.tokenizer));
    }
  }
  return {};
}

}  // namespace

Verb add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* verb = app.add_subcommand("generate", "answer prompts and end");
  add_load_flags(*verb, options->load);
  verb->add_option("prompt", options->prompt, "a text");
  verb->add_option("--prompts", options->prompts_file, "a file with one text a line");
  verb->add_option("--tokens", options->tokens_file, "JSON: {\"prompts\": [[ids], ...]}");
  verb->add_flag("--chat", options->chat, "put every text into the chat template as a user's turn");
  verb->add_flag("--no-thinking", options->no_thinking, "with --chat: answer at once");
  verb->add_flag("--ignore-eos", options->ignore_eos, "go on after the model's stop tokens");
  verb->add_option("--json", options->json, "write tokens and texts to this file; -: to stdout");
  add_sampling_flags(*verb, options->sampling);
  add_engine_flags(*verb, options->engine);
  refuse_unless(*verb, [options] { return check_sources(*options); });
  return [options] { return generate(*options); };
}

}  // namespace tandem::apps
