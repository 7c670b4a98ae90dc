#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/limits.h"
#include "engine/request.h"
#include "sim/sim_runner.h"

namespace tandem::sim {

/// All clients of a cluster: what they asked for, and whether what they got is right. Exactly one
/// last event each; the tokens are those of the hash model, from the first on, up to the end that
/// the request demands, or to a cancellation or an error that is allowed.
class Clients final : public engine::EventSink {
 public:
  Clients(const engine::Limits& limits, Find find) : limits_(limits), find_(std::move(find)) {}

  /// Whether a request may end with an error; looked at when it does.
  bool may_fail = false;
  std::function<void(const std::string&)> trace = [](const std::string&) {};

  void submit(engine::EngineClient& engine, engine::Request request);
  /// The client may get all the same what was on its way.
  void cancel(engine::EngineClient& engine, RequestId id);
  void on_events(std::span<engine::Event> events) override;

  size_t open_count() const { return requests_.size() - ended_; }
  std::vector<RequestId> open_ids() const;
  /// A request that has not ended.
  std::string open() const;
  size_t failed_count() const { return failed_; }
  size_t count() const { return requests_.size(); }

 private:
  struct Client {
    engine::Request request;
    std::vector<TokenId> tokens;
    bool is_cancelled = false;
    bool has_ended = false;
  };
  struct Outcome {
    std::vector<TokenId> tokens;
    engine::FinishReason finish = engine::FinishReason::kStop;
  };
  Outcome expected(const engine::Request& request) const;
  void end(RequestId id, Client& client, engine::FinishReason finish, const Error* error);

  const engine::Limits limits_;
  const Find find_;
  std::map<RequestId, Client> requests_;
  size_t ended_ = 0;
  size_t failed_ = 0;
};

}  // namespace tandem::sim
