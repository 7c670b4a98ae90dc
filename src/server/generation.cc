#include "server/generation.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem::server {

using openai::ApiError;
using openai::Endpoint;

namespace {

const char* handler_name(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "chat_completions" : "completions";
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void append(openai::LogprobTokens& target, openai::LogprobTokens&& source) {
  std::move(source.tokens.begin(), source.tokens.end(), std::back_inserter(target.tokens));
  target.text_offsets.insert(target.text_offsets.end(), source.text_offsets.begin(),
                             source.text_offsets.end());
}

}  // namespace

http::Response error_response(const ApiError& error) {
  http::Response response{.status = error.status, .body = openai::to_json(error)};
  if (error.retry_after_s > 0) {
    response.headers.push_back({"Retry-After", std::to_string(error.retry_after_s)});
  }
  return response;
}

ApiError full_of_bodies() {
  return {.status = 429,
          .message = "Too many requests wait to be read. Try again.",
          .code = openai::kQueueFull,
          .retry_after_s = 1};
}

Generation::Generation(GenerationServices& services, Origin origin, std::string body,
                       http::Responder& responder)
    : services_(services),
      origin_(std::move(origin)),
      responder_(responder),
      arrival_(std::chrono::steady_clock::now()) {
  using Result = openai::ApiResult<openai::Prepared>;
  preparation_ = services_.offload.start<Result>(
      [text = services_.text, endpoint = origin_.endpoint, body = std::move(body)] {
        return openai::prepare(endpoint, body, text);
      },
      [this](Result result) { on_prepared(std::move(result)); });
  if (!preparation_) {
    fail(full_of_bodies());
  }
}

Generation::~Generation() {
  if (!ended_) cancel_running();
}

std::string Generation::log_fields() const {
  const openai::Usage so_far = usage();
  return fmt::format("prompt_tokens={} completion_tokens={}", so_far.prompt_tokens,
                     so_far.completion_tokens);
}

void Generation::on_prepared(openai::ApiResult<openai::Prepared> result) {
  preparation_.reset();
  if (const auto* error = std::get_if<ApiError>(&result)) return fail(*error);
  prepared_ = std::move(std::get<openai::Prepared>(result));
  if (!prepared_.params.seeded) prepared_.params.sampling.seed = origin_.seed;
  head_ = {.endpoint = origin_.endpoint,
           .id = origin_.answer_id,
           .created = unix_seconds(),
           .model = prepared_.params.model};
  if (!submit_all() || !prepared_.params.stream) return;
  streaming_ = true;
  services_.metrics.on_answer(handler_name(origin_.endpoint), 200);
  responder_.start_stream();
}

bool Generation::submit_all() {
  const openai::GenerationParams& params = prepared_.params;
  choices_.reserve(prepared_.prompts.size() * params.n);
  for (size_t prompt = 0; prompt < prepared_.prompts.size(); ++prompt) {
    for (uint32_t k = 0; k < params.n; ++k) {
      engine::Request request = engine_request(prompt, k);
      const auto index = static_cast<uint32_t>(choices_.size());
      Choice& choice = choices_.emplace_back(
          services_.text.tokenizer, ChoiceText::Options{.stops = params.stops,
                                                        .include_stop = params.include_stop,
                                                        .skip_special = params.skip_special,
                                                        .tokens_min = params.tokens_min});
      choice.prompt = prompt;
      if (index == 0) services_.metrics.on_request(params.n, request.tokens_max);
      const auto id = services_.router.submit(std::move(request), *this, index);
      if (!id.ok()) {
        fail(openai::api_error(id.error()));
        return false;
      }
      choice.id = *id;
      choice.running = true;
      ++choices_running_;
    }
  }
  return true;
}

engine::Request Generation::engine_request(size_t prompt, uint32_t k) const {
  const openai::GenerationParams& params = prepared_.params;
  engine::Request request;
  request.choice_index = k;
  request.prompt = prepared_.prompts[prompt].tokens;
  request.sampling = params.sampling;
  // The prompt is shorter than the model's context (checked), so there is room for one token.
  const uint32_t room =
      services_.text.rules.model_length_max - static_cast<uint32_t>(request.prompt.size());
  request.tokens_max = std::min(params.tokens_max.value_or(room), room);
  request.tokens_min = std::min(params.tokens_min, request.tokens_max);
  request.stop_tokens = params.stop_tokens;
  if (!params.ignore_eos) {
    request.stop_tokens.insert(request.stop_tokens.end(), services_.stop_tokens.begin(),
                               services_.stop_tokens.end());
  }
  request.cache_salt = params.cache_salt;
  return request;
}

void Generation::on_event(uint32_t index, engine::Event& event) {
  Choice& choice = choices_[index];
  if (event.finish) choice.running = false;  // the engine is done with it
  choice.cached_tokens = event.cached_tokens;
  Addition addition = add_tokens(choice, event);
  if (addition.stopped && choice.running) {
    services_.router.cancel(choice.id);
    choice.running = false;
  }
  const bool ends_well = addition.stopped || event.finish == engine::FinishReason::kStop ||
                         event.finish == engine::FinishReason::kLength;
  if (event.finish && !ends_well) {
    const Error ended = make_error(Code::kUnavailable, "The engine ended this request.");
    const Error error = event.error.value_or(ended);
    return fail(openai::api_error(error));
  }
  if (ends_well && !addition.stopped) {
    ChoiceText::Piece tail = choice.text.finish();
    addition.text += tail.text;
    addition.stopped = tail.stopped;
  }
  const bool stopped = addition.stopped;
  emit(index, std::move(addition));
  if (!ends_well) return;
  const engine::Timing* timing = event.finish ? &event.timing : nullptr;
  if (!stopped && event.finish == engine::FinishReason::kLength) {
    end_choice(index, "length", Metrics::Outcome::kLength, timing);
  } else {
    end_choice(index, "stop", Metrics::Outcome::kStop, timing);
  }
}

/// Tokens past a stop string are neither shown nor counted.
Generation::Addition Generation::add_tokens(Choice& choice, engine::Event& event) {
  Addition addition;
  const bool wants_logprobs = prepared_.params.sampling.logprobs_count >= 0;
  const uint32_t count_before = choice.tokens_count;
  for (size_t i = 0; i < event.tokens.size() && !addition.stopped; ++i) {
    engine::GeneratedToken& token = event.tokens[i];
    ++choice.tokens_count;
    const bool is_stop_token =
        event.finish == engine::FinishReason::kStop && i + 1 == event.tokens.size();
    const size_t offset = choice.text.characters_count();
    ChoiceText::Piece piece =
        is_stop_token ? choice.text.push_stop_token(token.token) : choice.text.push(token.token);
    addition.text += piece.text;
    addition.stopped = piece.stopped;
    const bool is_shown = !is_stop_token || prepared_.params.include_stop;
    if (wants_logprobs && is_shown) {
      addition.logprobs.tokens.push_back(std::move(token));
      addition.logprobs.text_offsets.push_back(offset);
    }
  }
  note_tokens(choice, choice.tokens_count - count_before);
  return addition;
}

void Generation::note_tokens(Choice& choice, size_t count) {
  if (count == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (choice.tokens_count == count) {
    services_.metrics.on_first_token(seconds_since(arrival_));
    if (count > 1) services_.metrics.on_later_tokens(0, count - 1);
  } else {
    services_.metrics.on_later_tokens(seconds_since(choice.last_token), count);
  }
  choice.last_token = now;
}

void Generation::emit(uint32_t index, Addition addition) {
  Choice& choice = choices_[index];
  if (!streaming_) {
    choice.answer += addition.text;
    append(choice.logprobs, std::move(addition.logprobs));
    return;
  }
  if (!choice.opened) {
    choice.opened = true;
    if (origin_.endpoint == Endpoint::kChat) {
      std::string chunk;
      openai::append_chunk(chunk, head_, {.index = index, .opens = true},
                           prepared_.params.include_usage);
      responder_.write(chunk);
    } else {
      addition.text.insert(0, prepared_.prompts[choice.prompt].echo);
    }
  }
  if (!addition.text.empty() || !addition.logprobs.tokens.empty()) {
    send_chunk(index, addition, nullptr);
  }
}

void Generation::send_chunk(uint32_t index, const Addition& addition, const char* finish_reason) {
  std::string chunk;
  const std::string logprobs =
      addition.logprobs.tokens.empty() ? "" : logprobs_json(addition.logprobs);
  openai::append_chunk(chunk, head_,
                       {.index = index,
                        .text = addition.text,
                        .logprobs_json = logprobs,
                        .finish_reason = finish_reason},
                       prepared_.params.include_usage);
  responder_.write(chunk);
}

void Generation::end_choice(uint32_t index, const char* finish_reason, Metrics::Outcome outcome,
                            const engine::Timing* timing) {
  Choice& choice = choices_[index];
  choice.finish_reason = finish_reason;
  services_.metrics.on_choice_end({.outcome = outcome,
                                   .seconds_since_arrival = seconds_since(arrival_),
                                   .prompt_tokens = prepared_.prompts[choice.prompt].tokens.size(),
                                   .generated_tokens = choice.tokens_count,
                                   .timing = timing});
  if (streaming_) send_chunk(index, {}, finish_reason);
  if (--choices_running_ == 0) finish_answer();
}

void Generation::finish_answer() {
  ended_ = true;
  if (streaming_) {
    std::string end;
    if (prepared_.params.include_usage) openai::append_usage_chunk(end, head_, usage());
    openai::append_done(end);
    responder_.write(end);
    responder_.finish();
    return;
  }
  std::vector<std::string> logprobs(choices_.size());
  std::vector<openai::ChoicePart> parts;
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.answer.insert(0, prepared_.prompts[choice.prompt].echo);
    if (prepared_.params.sampling.logprobs_count >= 0) logprobs[i] = logprobs_json(choice.logprobs);
    parts.push_back({.index = i,
                     .text = choice.answer,
                     .logprobs_json = logprobs[i],
                     .finish_reason = choice.finish_reason});
  }
  services_.metrics.on_answer(handler_name(origin_.endpoint), 200);
  responder_.respond({.body = openai::answer_json(head_, parts, usage())});
}

void Generation::fail(const ApiError& error) {
  if (error.status >= 500) {
    spdlog::error("request_failed request_id={} status={} error=\"{}\"", origin_.request_id,
                  error.status, error.message);
  }
  ended_ = true;
  cancel_running();
  if (!streaming_) {
    services_.metrics.on_answer(handler_name(origin_.endpoint), error.status);
    responder_.respond(error_response(error));
    return;
  }
  std::string end;
  openai::append_error_event(end, error);
  openai::append_done(end);
  responder_.write(end);
  responder_.finish();
}

/// Ends every choice without a finish reason, because of an error or because the client left.
void Generation::cancel_running() {
  for (Choice& choice : choices_) {
    if (choice.finish_reason != nullptr || choice.id == RequestId{}) continue;
    services_.metrics.on_choice_end(
        {.outcome = ended_ ? Metrics::Outcome::kError : Metrics::Outcome::kAbort,
         .seconds_since_arrival = seconds_since(arrival_),
         .prompt_tokens = prepared_.prompts[choice.prompt].tokens.size(),
         .generated_tokens = choice.tokens_count,
         .timing = nullptr});
    if (choice.running) services_.router.cancel(choice.id);
    choice.running = false;
  }
}

openai::Usage Generation::usage() const {
  openai::Usage usage;
  for (const openai::PreparedPrompt& prompt : prepared_.prompts) {
    usage.prompt_tokens += prompt.tokens.size();
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i].tokens_count;
    // Choices of one prompt share it: the first one's hits count, as its tokens count once.
    if (i % prepared_.params.n == 0) usage.cached_tokens += choices_[i].cached_tokens;
  }
  return usage;
}

std::string Generation::logprobs_json(const openai::LogprobTokens& logprobs) const {
  std::string json;
  if (origin_.endpoint == Endpoint::kChat) {
    openai::append_chat_logprobs(json, logprobs, services_.text.tokenizer);
  } else {
    openai::append_completion_logprobs(json, logprobs, services_.text.tokenizer);
  }
  return json;
}

double Generation::seconds_since(TimePoint start) const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tandem::server
