#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/http.h"
#include "server/http/request_parser.h"

namespace tandem::server::http {

/// Listens, reads requests, hands them to a Handler and sends what it answers. Everything but
/// post(), drain() and stop() happens on the one thread inside run(), so a Handler needs no lock.
/// Errors of one connection end that connection only.
class HttpServer final : public Loop {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 8000;  ///< 0: any free one
    uint32_t connections_max = 12'000;
    RequestParser::Limits limits;
    size_t bodies_bytes_max = 512u << 20;  ///< of all requests that are being read
    size_t stream_queue_bytes_max = 4u << 20;
    int socket_send_bytes = 0;    ///< the kernel's buffer per connection; 0: its default
    int idle_ms = 75'000;         ///< between requests
    int header_ms = 10'000;       ///< first byte of a request -> end of its head
    int body_ms = 60'000;         ///< end of the head -> end of the body
    int write_stall_ms = 30'000;  ///< no byte accepted by the client for so long
    int keep_alive_ms = 10'000;   ///< silence in a stream before a comment line
  };

  /// What happened to connections since the start.
  struct Counters {
    uint64_t connections_open = 0;
    uint64_t connections_accepted = 0;
    uint64_t connections_refused = 0;  ///< beyond connections_max
    uint64_t accept_errors = 0;
    uint64_t read_timeouts = 0;
    uint64_t disconnects = 0;   ///< the client left before its answer was complete
    uint64_t slow_readers = 0;  ///< cut off: stalled, or too much queued
  };

  /// Binds and listens; accepting starts in run().
  static Result<std::unique_ptr<HttpServer>> create(Options options);
  ~HttpServer() override;

  uint16_t port() const;
  /// Serves until stop(), or after drain() until the last answer was sent. Call once.
  void run(Handler& handler);

  /// Stops accepting, closes idle connections, lets answers in progress finish. From any thread
  /// and from signal handlers.
  void drain();
  /// Cuts everything. From any thread and from signal handlers.
  void stop();

  void post(std::unique_ptr<Task> task) override;
  bool draining() const override;
  /// On the I/O thread only.
  const Counters& counters() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::server::http
