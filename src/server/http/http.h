#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::server::http {

struct Header {
  std::string name;
  std::string value;
};

/// One request, read completely and within the limits.
struct Request {
  std::string method;      ///< "GET", "POST", ...; HEAD arrives as GET
  std::string path;        ///< without the query, percent-decoded
  std::string request_id;  ///< the client's X-Request-Id, or one made here
  std::string body;
  bool body_omitted = false;  ///< HEAD: the answer's body is counted but not sent
  bool keep_alive = true;
  bool chunked_answers = true;  ///< false for HTTP/1.0
};

/// A whole answer.
struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<Header> headers;
};

/// Why a request never reached the handler.
struct Refusal {
  int status = 400;
  std::string code;  ///< a slug
  std::string message;
};

/// Where the answer to one request goes: one respond(), or start_stream(), any number of write()
/// and one finish(). Used on the I/O thread only, while the request's Exchange lives.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void respond(Response response) = 0;
  /// Sends the head of a text/event-stream. From now on, a silence of the configured length is
  /// filled with a comment line.
  virtual void start_stream() = 0;
  /// Queues bytes. A client that lets more than the configured bytes pile up is cut off.
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;
};

/// The work behind one answer that is not complete yet. The connection owns it and destroys it
/// when the answer was sent or the client is gone, so its destructor is the place to cancel.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// What a log line says of this work: "key=value key=value", or nothing.
  virtual std::string log_fields() const { return {}; }
};

/// One request whose answer was sent, or whose client left before that.
struct Answered {
  const std::string& method;
  const std::string& path;
  const std::string& request_id;
  int status = 0;
  bool client_gone = false;
  std::chrono::milliseconds duration{};  ///< from the last byte read to the last byte sent
  const Exchange* exchange = nullptr;    ///< nullptr when it was answered at once
};

/// Answers requests. Called on the I/O thread only; must not block.
class Handler {
 public:
  virtual ~Handler() = default;
  /// Answers at once and returns nothing, or returns the work that will use `responder` later.
  virtual std::unique_ptr<Exchange> handle(Request request, Responder& responder) = 0;
  /// The answer to a request that could not be read.
  virtual Response describe(const Refusal& refusal) = 0;
  /// Called once for each request that handle() got, when it is over.
  virtual void on_answered(const Answered& /*answered*/) {}
};

/// Something to do once.
class Task {
 public:
  virtual ~Task() = default;
  virtual void run() = 0;
};

/// Brings work onto the I/O thread.
class Loop {
 public:
  virtual ~Loop() = default;
  /// From any thread. Tasks of one thread run in order; after the loop has ended they are dropped.
  virtual void post(std::unique_ptr<Task> task) = 0;
  /// On the I/O thread: no new work is taken any more.
  virtual bool draining() const = 0;
};

}  // namespace tandem::server::http
