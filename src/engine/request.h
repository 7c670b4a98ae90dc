#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/status.h"

namespace tandem::engine {

/// How tokens are chosen. Order of operations: logit_bias, repetition, presence and frequency
/// penalties, temperature, then top_k, top_p and min_p on the result, then one draw keyed by
/// (seed, choice_index, position): the same draw whatever else runs beside it.
struct SamplingParams {
  float temperature = 1.0f;         ///< 0 picks the most likely token (lowest id on ties).
  int32_t top_k = 0;                ///< 0 keeps all.
  float top_p = 1.0f;               ///< (0, 1]
  float min_p = 0.0f;               ///< [0, 1], relative to the most likely token
  float presence_penalty = 0.0f;    ///< [-2, 2], over generated tokens
  float frequency_penalty = 0.0f;   ///< [-2, 2], over generated tokens
  float repetition_penalty = 1.0f;  ///< [0.001, 1e6], over prompt and generated tokens
  uint64_t seed = 0;                ///< The front end draws one when the client gives none.
  struct Bias {
    TokenId token;
    float bias;
  };
  std::vector<Bias> logit_bias;
  int32_t logprobs_count = -1;  ///< -1 none; 0 the chosen token only; else also the top N (<= 20)
};

/// Where the K and V of a prompt are computed (ports.h).
enum class KvWay : uint8_t {
  kHere,    ///< by this engine, which generates, too
  kImport,  ///< by another: this one waits for all but the last token, and generates
  kExport,  ///< by this one for another: all but the last token, and nothing is generated
};

/// One choice to generate. Token ids only: text, templates and stop strings stay in the front end,
/// which cancels the request when a stop string appears.
struct Request {
  RequestId id;
  uint32_t choice_index = 0;
  std::vector<TokenId> prompt;  ///< [1, max_model_len)
  SamplingParams sampling;
  uint32_t tokens_max = 16;          ///< generated at most, >= 1
  uint32_t tokens_min = 0;           ///< stop tokens are masked until so many are generated
  std::vector<TokenId> stop_tokens;  ///< ends the request; the front end adds the model's own
                                     ///< unless ignore_eos
  std::string cache_salt;            ///< prefixes are shared only between equal salts
  KvWay kv_way = KvWay::kHere;
};

enum class FinishReason {
  kStop,       ///< a stop token was generated (it is the last token of the last event)
  kLength,     ///< tokens_max or the model's context is reached; an export is computed
  kCancelled,  ///< cancel() was called
  kError,      ///< see Event::error
};

struct TokenLogprob {
  TokenId token;
  float logprob;  ///< natural log, of the softmax of the raw logits (before bias and penalties)
};

struct GeneratedToken {
  TokenId token;
  float logprob = 0.0f;           ///< set when logprobs_count >= 0
  std::vector<TokenLogprob> top;  ///< most likely first, size = logprobs_count
};

/// Where a request's time went, in microseconds of the engine's monotonic clock.
struct Timing {
  int64_t queue_us = 0;    ///< submitted -> first scheduled
  int64_t prefill_us = 0;  ///< first scheduled -> first token
  int64_t decode_us = 0;   ///< first token -> last
};

/// What happened to one request in one step. Exactly one event per request carries `finish`.
struct Event {
  RequestId id;
  std::vector<GeneratedToken> tokens;
  std::optional<FinishReason> finish;
  std::optional<Error> error;  ///< with kError
  uint32_t prompt_tokens = 0;  ///< set on every event
  uint32_t cached_tokens = 0;  ///< prompt tokens served by the prefix index
  Timing timing;               ///< set with `finish`
};

/// Receives events on the engine's thread, in order per request. Must return quickly and must not
/// call back into the engine.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_events(std::span<Event> events) = 0;  ///< may move from the events
};

/// What the front end sees of an engine, in this process or behind a channel. Thread-safe.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  /// Queues a request. kInvalidArgument names the bad field; kResourceExhausted when the queue
  /// is full; kFailedPrecondition when it stops. After ok, events follow until one has `finish`.
  virtual Result<void> submit(Request request, EventSink& sink) = 0;
  /// Ends a request soon; its last event has kCancelled. Unknown and finished ids are ignored.
  virtual void cancel(RequestId id) = 0;
  virtual EngineStatus status() const = 0;
};

}  // namespace tandem::engine
