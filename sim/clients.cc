#include "sim/clients.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/testing/hash_runner.h"

namespace tandem::sim {

using engine::FinishReason;
using engine::testing::HashModel;

void Clients::submit(engine::EngineClient& engine, engine::Request request) {
  const RequestId id = request.id;
  Client& client = requests_[id];
  client.request = request;
  trace(fmt::format("request {}: {} tokens, at most {} more", id.value, request.prompt.size(),
                    request.tokens_max));
  const Result<void> taken = engine.submit(std::move(request), *this);
  if (!taken.ok()) end(id, client, FinishReason::kError, &taken.error());
}

void Clients::cancel(engine::EngineClient& engine, RequestId id) {
  Client& client = requests_.at(id);
  if (client.has_ended) return;
  client.is_cancelled = true;
  trace(fmt::format("request {}: cancel", id.value));
  engine.cancel(id);
}

void Clients::on_events(std::span<engine::Event> events) {
  for (const engine::Event& event : events) {
    const auto found = requests_.find(event.id);
    if (found == requests_.end()) return find_("an event of a request that nobody made");
    Client& client = found->second;
    if (client.has_ended) {
      return find_(fmt::format("request {} speaks after its end", event.id.value));
    }
    for (const engine::GeneratedToken& token : event.tokens) client.tokens.push_back(token.token);
    if (event.finish) {
      end(event.id, client, *event.finish, event.error ? &*event.error : nullptr);
    }
  }
}

void Clients::end(RequestId id, Client& client, FinishReason finish, const Error* error) {
  client.has_ended = true;
  ++ended_;
  trace(fmt::format("request {}: ends after {} tokens{}{}", id.value, client.tokens.size(),
                    error != nullptr ? ": " : "", error != nullptr ? error->what : ""));
  const Outcome right = expected(client.request);
  const bool is_cut = finish == FinishReason::kError || finish == FinishReason::kCancelled;
  const auto length = static_cast<std::ptrdiff_t>(client.tokens.size());
  const bool is_prefix =
      client.tokens.size() <= right.tokens.size() &&
      std::equal(client.tokens.begin(), client.tokens.begin() + length, right.tokens.begin());
  if (!is_prefix || (!is_cut && client.tokens.size() != right.tokens.size())) {
    return find_(fmt::format("request {} got wrong tokens: {} of {}", id.value,
                             client.tokens.size(), right.tokens.size()));
  }
  if (finish == FinishReason::kError) {
    ++failed_;
    if (error == nullptr) return find_(fmt::format("request {} fails without a word", id.value));
    if (!may_fail) {
      return find_(fmt::format("request {} fails although all is well: {}", id.value, error->what));
    }
  } else if (finish == FinishReason::kCancelled) {
    if (!client.is_cancelled) {
      return find_(fmt::format("request {} was cancelled by nobody", id.value));
    }
  } else if (finish != right.finish) {
    return find_(fmt::format("request {} ends for the wrong reason", id.value));
  }
}

std::vector<RequestId> Clients::open_ids() const {
  std::vector<RequestId> ids;
  for (const auto& [id, client] : requests_) {
    if (!client.has_ended) ids.push_back(id);
  }
  return ids;
}

std::string Clients::open() const {
  for (const auto& [id, client] : requests_) {
    if (!client.has_ended) {
      return fmt::format("request {} has not ended; it has {} tokens", id.value,
                         client.tokens.size());
    }
  }
  return {};
}

Clients::Outcome Clients::expected(const engine::Request& request) const {
  Outcome outcome;
  uint64_t state = 0;
  for (const TokenId token : request.prompt) state = HashModel::after(state, token);
  for (;;) {
    const size_t known = request.prompt.size() + outcome.tokens.size();
    const ops::SampleRow row{.seed = request.sampling.seed,
                             .choice_index = request.choice_index,
                             .position = static_cast<uint32_t>(known),
                             .vocabulary_limit = static_cast<int32_t>(limits_.tokenizer_size)};
    outcome.tokens.push_back(HashModel::next(state, row));
    state = HashModel::after(state, outcome.tokens.back());
    const auto& stops = request.stop_tokens;
    if (std::ranges::find(stops, outcome.tokens.back()) != stops.end()) return outcome;
    if (outcome.tokens.size() == request.tokens_max || known + 1 == limits_.model_length_max) {
      outcome.finish = FinishReason::kLength;
      return outcome;
    }
  }
}

}  // namespace tandem::sim
