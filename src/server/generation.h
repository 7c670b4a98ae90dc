#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/choice_text.h"
#include "server/event_router.h"
#include "server/http/http.h"
#include "server/metrics.h"
#include "server/offload.h"
#include "server/openai/answer.h"
#include "server/openai/logprobs.h"
#include "server/openai/prepare.h"

namespace tandem::server {

/// What generations work with; outlives them.
struct GenerationServices {
  openai::TextServices text;
  std::vector<TokenId> stop_tokens;  ///< the model's own
  Offload& offload;
  EventRouter& router;
  Metrics& metrics;
};

/// One request for text, from its body to the last byte of its answer: prepares it on a worker,
/// submits every choice to the engine, turns events into text, and text into one JSON answer or a
/// stream. I/O thread only. Destroying it cancels what still runs.
class Generation final : public http::Exchange, private EventRouter::Receiver {
 public:
  struct Origin {
    openai::Endpoint endpoint;
    std::string request_id;  ///< for logs
    std::string answer_id;
    uint64_t seed;  ///< when the client gives none
  };
  Generation(GenerationServices& services, Origin origin, std::string body,
             http::Responder& responder);
  ~Generation() override;

  /// Tokens of the prompts and of all choices so far.
  std::string log_fields() const override;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Choice {
    Choice(const text::Tokenizer& tokenizer, ChoiceText::Options options)
        : text(tokenizer, std::move(options)) {}
    ChoiceText text;
    RequestId id;
    size_t prompt = 0;  // index of its prompt
    bool running = false;
    bool opened = false;  // its first chunk was sent
    uint32_t tokens_count = 0;
    uint32_t cached_tokens = 0;
    TimePoint last_token;
    const char* finish_reason = nullptr;
    // What a whole answer will contain; a stream sends it at once instead.
    std::string answer;
    openai::LogprobTokens logprobs;
  };
  /// What one event adds to a choice.
  struct Addition {
    std::string text;
    openai::LogprobTokens logprobs;
    bool stopped = false;  // by a stop string
  };

  void on_prepared(openai::ApiResult<openai::Prepared> result);
  bool submit_all();
  engine::Request engine_request(size_t prompt, uint32_t k) const;
  void on_event(uint32_t index, engine::Event& event) override;
  Addition add_tokens(Choice& choice, engine::Event& event);
  void note_tokens(Choice& choice, size_t count);
  void emit(uint32_t index, Addition addition);
  void send_chunk(uint32_t index, const Addition& addition, const char* finish_reason);
  void end_choice(uint32_t index, const char* finish_reason, Metrics::Outcome outcome,
                  const engine::Timing* timing);
  void finish_answer();
  void fail(const openai::ApiError& error);
  void cancel_running();
  openai::Usage usage() const;
  std::string logprobs_json(const openai::LogprobTokens& logprobs) const;
  double seconds_since(TimePoint start) const;

  GenerationServices& services_;
  const Origin origin_;
  http::Responder& responder_;
  const TimePoint arrival_;
  std::unique_ptr<Offload::Pending> preparation_;
  openai::Prepared prepared_;
  openai::AnswerHead head_;
  std::vector<Choice> choices_;  // prompt-major: prompt * n + k
  size_t choices_running_ = 0;
  bool streaming_ = false;  // the head of the stream was sent
  bool ended_ = false;
};

/// Answers with an error's JSON and its Retry-After.
http::Response error_response(const openai::ApiError& error);

/// What a client is told whose body no worker has room for.
openai::ApiError full_of_bodies();

}  // namespace tandem::server
