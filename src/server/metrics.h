#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/request.h"
#include "server/http/http_server.h"

namespace tandem::server {

/// Everything GET /metrics shows (docs/metrics.md lists the series). All series exist, at zero,
/// from the start. I/O thread only.
class Metrics {
 public:
  /// The served model's name becomes a label of every series of the engine.
  explicit Metrics(const std::string& model_name);
  ~Metrics();

  void on_request(uint32_t n, uint32_t tokens_max);
  void on_first_token(double seconds_since_arrival);
  void on_later_tokens(double seconds_since_last, size_t count);

  enum class Outcome { kStop, kLength, kAbort, kError };
  struct Choice {
    Outcome outcome;
    double seconds_since_arrival;
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
    const engine::Timing* timing;  ///< nullptr when the engine reported none
  };
  void on_choice_end(const Choice& choice);

  /// `handler` is the label of an endpoint (a Route in api.cc), or "other".
  void on_answer(std::string_view handler, int status);

  /// The page, in Prometheus's text format, with the engine's and the sockets' own numbers.
  std::string expose(const engine::EngineStatus& status,
                     const http::HttpServer::Counters& connections);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::server
