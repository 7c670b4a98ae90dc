#include "cluster/wire/request_codec.h"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <utility>

namespace tandem::cluster::wire {
namespace {

using engine::Event;
using engine::FinishReason;
using engine::GeneratedToken;
using engine::KvWay;
using engine::Request;
using engine::SamplingParams;
using engine::Timing;
using engine::TokenLogprob;

Error invalid(std::string what) {
  return make_error(Code::kInvalidArgument, std::move(what));
}

Result<void> check_size(const char* field, size_t size, size_t size_max) {
  if (size <= size_max) return {};
  return invalid(
      fmt::format("{} has {} entries or bytes; at most {} reach a worker", field, size, size_max));
}

Result<void> check_finite(const char* field, float value) {
  if (std::isfinite(value)) return {};
  return invalid(fmt::format("{} is {}; it must be a finite number", field, value));
}

Result<void> check_tokens(const char* field, std::span<const TokenId> tokens,
                          const WireLimits& limits) {
  for (const TokenId token : tokens) {
    if (token >= 0 && token < limits.vocabulary_size) continue;
    return invalid(fmt::format("{} holds token {}; the vocabulary is [0, {})", field, token,
                               limits.vocabulary_size));
  }
  return {};
}

Result<void> check_sampling(const SamplingParams& sampling, const WireLimits& limits) {
  TANDEM_TRY(check_finite("temperature", sampling.temperature));
  TANDEM_TRY(check_finite("top_p", sampling.top_p));
  TANDEM_TRY(check_finite("min_p", sampling.min_p));
  TANDEM_TRY(check_finite("presence_penalty", sampling.presence_penalty));
  TANDEM_TRY(check_finite("frequency_penalty", sampling.frequency_penalty));
  TANDEM_TRY(check_finite("repetition_penalty", sampling.repetition_penalty));
  TANDEM_TRY(check_size("logit_bias", sampling.logit_bias.size(), limits.list_max));
  for (const SamplingParams::Bias& bias : sampling.logit_bias) {
    TANDEM_TRY(check_tokens("logit_bias", {&bias.token, 1}, limits));
    TANDEM_TRY(check_finite("logit_bias", bias.bias));
  }
  return {};
}

void put_sampling(Writer& writer, const SamplingParams& sampling) {
  writer.put_float(sampling.temperature);
  writer.put(static_cast<uint32_t>(sampling.top_k));
  writer.put_float(sampling.top_p);
  writer.put_float(sampling.min_p);
  writer.put_float(sampling.presence_penalty);
  writer.put_float(sampling.frequency_penalty);
  writer.put_float(sampling.repetition_penalty);
  writer.put(sampling.seed);
  writer.put_list(sampling.logit_bias, [&](const SamplingParams::Bias& bias) {
    put_token(writer, bias.token);
    writer.put_float(bias.bias);
  });
  writer.put(static_cast<uint32_t>(sampling.logprobs_count));
}

SamplingParams take_sampling(ByteReader& reader, const WireLimits& limits) {
  SamplingParams sampling;
  sampling.temperature = reader.take_float();
  sampling.top_k = static_cast<int32_t>(reader.take<uint32_t>());
  sampling.top_p = reader.take_float();
  sampling.min_p = reader.take_float();
  sampling.presence_penalty = reader.take_float();
  sampling.frequency_penalty = reader.take_float();
  sampling.repetition_penalty = reader.take_float();
  sampling.seed = reader.take<uint64_t>();
  sampling.logit_bias = reader.take_list(limits.list_max, 8, [&] {
    const TokenId token = take_token(reader, limits);
    return SamplingParams::Bias{token, reader.take_float()};
  });
  sampling.logprobs_count = static_cast<int32_t>(reader.take<uint32_t>());
  return sampling;
}

void put_logprob(Writer& writer, const TokenLogprob& logprob) {
  put_token(writer, logprob.token);
  writer.put_float(logprob.logprob);
}

/// Any number: the answer shows it, nothing computes with it.
TokenLogprob take_logprob(ByteReader& reader, const WireLimits& limits) {
  const TokenId token = take_token(reader, limits);
  return {token, reader.take_float()};
}

GeneratedToken take_generated(ByteReader& reader, const WireLimits& limits) {
  const TokenLogprob chosen = take_logprob(reader, limits);
  return {chosen.token, chosen.logprob,
          reader.take_list(limits.list_max, 8, [&] { return take_logprob(reader, limits); })};
}

void put_timing(Writer& writer, const Timing& timing) {
  writer.put(static_cast<uint64_t>(timing.queue_us));
  writer.put(static_cast<uint64_t>(timing.prefill_us));
  writer.put(static_cast<uint64_t>(timing.decode_us));
}

Timing take_timing(ByteReader& reader) {
  Timing timing;
  timing.queue_us = static_cast<int64_t>(reader.take<uint64_t>());
  timing.prefill_us = static_cast<int64_t>(reader.take<uint64_t>());
  timing.decode_us = static_cast<int64_t>(reader.take<uint64_t>());
  return timing;
}

}  // namespace

Result<void> check(const Request& request, const WireLimits& limits) {
  if (request.prompt.empty()) return invalid("the prompt is empty; send at least one token");
  TANDEM_TRY(check_size("the prompt", request.prompt.size(), limits.tokens_max));
  TANDEM_TRY(check_tokens("the prompt", request.prompt, limits));
  TANDEM_TRY(check_size("stop_token_ids", request.stop_tokens.size(), limits.list_max));
  TANDEM_TRY(check_tokens("stop_token_ids", request.stop_tokens, limits));
  TANDEM_TRY(check_size("cache_salt", request.cache_salt.size(), limits.text_bytes_max));
  return check_sampling(request.sampling, limits);
}

void put_request(Writer& writer, const Request& request) {
  writer.put(request.id.value);
  writer.put(request.choice_index);
  put_tokens(writer, request.prompt);
  put_sampling(writer, request.sampling);
  writer.put(request.tokens_max);
  writer.put(request.tokens_min);
  put_tokens(writer, request.stop_tokens);
  writer.put_text(request.cache_salt);
  writer.put_enum(request.kv_way);
}

Request take_request(ByteReader& reader, const WireLimits& limits) {
  Request request;
  request.id.value = reader.take<uint64_t>();
  request.choice_index = reader.take<uint32_t>();
  request.prompt = take_tokens(reader, limits.tokens_max, limits);
  request.sampling = take_sampling(reader, limits);
  request.tokens_max = reader.take<uint32_t>();
  request.tokens_min = reader.take<uint32_t>();
  request.stop_tokens = take_tokens(reader, limits.list_max, limits);
  request.cache_salt = reader.take_text(limits.text_bytes_max);
  request.kv_way = reader.take_enum(KvWay::kHere, KvWay::kExport);
  reader.require(reader.ok() && check(request, limits).ok());
  return request;
}

void put_event(Writer& writer, const Event& event, const WireLimits& limits) {
  writer.put(event.id.value);
  writer.put_list(event.tokens, [&](const GeneratedToken& token) {
    put_logprob(writer, {token.token, token.logprob});
    writer.put_list(token.top, [&](const TokenLogprob& top) { put_logprob(writer, top); });
  });
  writer.put(event.finish.has_value());
  if (event.finish) writer.put_enum(*event.finish);
  writer.put(event.error.has_value());
  if (event.error) {
    writer.put_enum(event.error->code);
    put_cut_text(writer, event.error->what, limits);
  }
  writer.put(event.prompt_tokens);
  writer.put(event.cached_tokens);
  put_timing(writer, event.timing);
}

Event take_event(ByteReader& reader, const WireLimits& limits) {
  Event event;
  event.id.value = reader.take<uint64_t>();
  event.tokens =
      reader.take_list(limits.list_max, 12, [&] { return take_generated(reader, limits); });
  if (reader.take_flag()) {
    event.finish = reader.take_enum(FinishReason::kStop, FinishReason::kError);
  }
  if (reader.take_flag()) {
    const Code code = reader.take_enum(Code{}, Code::kInternal);
    event.error = make_error(code, reader.take_text(limits.text_bytes_max));
  }
  reader.require(event.error.has_value() == (event.finish == FinishReason::kError));
  event.prompt_tokens = reader.take<uint32_t>();
  event.cached_tokens = reader.take<uint32_t>();
  event.timing = take_timing(reader);
  return event;
}

}  // namespace tandem::cluster::wire
