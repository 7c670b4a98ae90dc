#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "server/http/http_server.h"
#include "server/http/response_text.h"

namespace tandem::server::http {

class Connection;

/// What the connections of one server share. I/O thread only.
struct Shared {
  HttpServer::Options options;
  Handler* handler = nullptr;  // set for the time of run()
  HttpServer::Counters counters;
  std::unordered_set<Connection*> connections;
  size_t bodies_bytes = 0;  // held by requests that are being read
  bool draining = false;
  uint64_t request_ids_made = 0;
  uint64_t request_id_prefix = 0;  // random, so that ids of two runs differ
};

/// One client: reads a request, lets the handler answer, sends the answer, and again. Lives in its
/// coroutine's frame. A silent connection costs this object, the frame and no buffers.
class Connection final : public Responder {
 public:
  Connection(boost::asio::ip::tcp::socket socket, Shared& shared);
  ~Connection() override;

  /// The whole life of the connection.
  boost::asio::awaitable<void> serve();

  /// Called every now and then: ends waits past their deadline and fills silent streams.
  void sweep(std::chrono::steady_clock::time_point now);
  /// Ends the connection when it waits for a request; otherwise after its answer.
  void drain();
  /// Ends the connection now.
  void abort();

  void respond(Response response) override;
  void start_stream() override;
  void write(std::string_view bytes) override;
  void finish() override;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  boost::asio::awaitable<bool> read_request(Request& request);
  boost::asio::awaitable<bool> read_more();
  boost::system::error_code read_available();
  boost::asio::awaitable<void> answer(Request& request);
  boost::asio::awaitable<void> refuse(const Refusal& refusal);
  boost::asio::awaitable<void> send_queue();
  boost::asio::awaitable<void> watch_peer();
  boost::asio::awaitable<void> close_gently();
  void begin_answer(const Request& request);
  void set_deadline(int timeout_ms);
  void queue_changed();
  void cut_slow_reader();
  int bytes_in_kernel();
  std::string make_request_id();

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer wake_;  // cancelled when the queue changes
  Shared& shared_;

  std::string input_;       // received, not yet read as a request
  TimePoint deadline_;      // of the wait in progress
  bool expired_ = false;    // the deadline ended the wait
  bool idle_ = false;       // waiting for the first byte of a request
  bool peer_gone_ = false;  // nothing more can be sent

  // The answer in progress:
  std::string request_id_;
  int status_ = 0;  // once the head is queued
  Framing framing_;
  std::string output_;               // queued
  size_t sent_ = 0;                  // of output_
  std::optional<int> kernel_bytes_;  // while a write waits: bytes_in_kernel() at the last look
  bool streaming_ = false;
  bool finished_ = false;
  TimePoint last_write_;
};

}  // namespace tandem::server::http
