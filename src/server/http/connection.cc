#include "server/http/connection.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"

namespace tandem::server::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr size_t kReadBytes = 64u << 10;
/// Requests that a client may send ahead while one is being answered. Beyond that its departure
/// goes unnoticed until we write.
constexpr size_t kReadAheadBytesMax = 64u << 10;
/// After a refusal we read on for a moment, because closing with unread bytes resets the
/// connection and may destroy the answer on its way.
constexpr int kGentleCloseMs = 1000;
constexpr size_t kGentleCloseBytesMax = 16u << 20;

constexpr auto kNever = std::chrono::steady_clock::time_point::max();

// Named, because g++ 12 destroys temporaries inside a co_await expression twice.
const Refusal kOverloaded{.status = 429,
                          .code = "queue_full",
                          .message = "Too many large requests are being read. Try again."};
const Refusal kTooSlow{
    .status = 408, .code = "request_timeout", .message = "The request did not arrive in time."};

/// Counts the bytes of one request's body against the bound of all.
class BodyShare {
 public:
  explicit BodyShare(size_t& total) : total_(total) {}
  ~BodyShare() { release(); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  void add(size_t bytes) {
    bytes_ += bytes;
    total_ += bytes;
  }
  void release() {
    total_ -= bytes_;
    bytes_ = 0;
  }

 private:
  size_t& total_;
  size_t bytes_ = 0;
};

}  // namespace

Connection::Connection(tcp::socket socket, Shared& shared)
    : socket_(std::move(socket)),
      wake_(socket_.get_executor()),
      shared_(shared),
      deadline_(kNever) {
  shared_.connections.insert(this);
  ++shared_.counters.connections_open;
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(tcp::no_delay(true), ignored);  // a token must not wait for the next one
}

Connection::~Connection() {
  shared_.connections.erase(this);
  --shared_.counters.connections_open;
}

asio::awaitable<void> Connection::serve() {
  for (;;) {
    Request request;
    if (!co_await read_request(request)) co_return;
    co_await answer(request);
    if (peer_gone_) co_return;
    if (!framing_.keep_alive) {
      co_await close_gently();
      co_return;
    }
  }
}

/// False: the connection is over.
asio::awaitable<bool> Connection::read_request(Request& request) {
  RequestParser parser(shared_.options.limits);
  BodyShare body(shared_.bodies_bytes);
  bool header_started = false;
  bool body_started = false;
  for (;;) {
    if (!input_.empty()) {
      if (!header_started) set_deadline(shared_.options.header_ms);
      header_started = true;
      const bool in_body = parser.header_done();
      const size_t used = parser.feed(input_);
      input_.erase(0, used);
      if (in_body) body.add(used);
      if (parser.refusal() || shared_.bodies_bytes > shared_.options.bodies_bytes_max) {
        body.release();
        const Refusal refusal = parser.refusal().value_or(kOverloaded);
        co_await refuse(refusal);
        co_return false;
      }
      if (parser.done()) break;
      if (parser.header_done() && !body_started) {
        body_started = true;
        set_deadline(shared_.options.body_ms);
        if (parser.expects_continue()) {
          error_code ignored;  // the buffer of a connection that has sent nothing has room
          socket_.write_some(asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25), ignored);
        }
      }
    }
    if (!header_started) {
      if (shared_.draining) co_return false;
      idle_ = true;
      set_deadline(shared_.options.idle_ms);
    }
    const bool more = co_await read_more();
    idle_ = false;
    if (more) continue;
    if (expired_ && header_started) {
      ++shared_.counters.read_timeouts;
      co_await refuse(kTooSlow);
    }
    co_return false;
  }
  deadline_ = kNever;
  request = parser.take();
  if (request.request_id.empty()) request.request_id = make_request_id();
  co_return true;
}

/// Adds at least one byte to input_, or returns false: closed, failed or past the deadline.
asio::awaitable<bool> Connection::read_more() {
  for (;;) {
    error_code error = read_available();
    if (!error) co_return true;
    if (error != asio::error::would_block) co_return false;
    co_await socket_.async_wait(tcp::socket::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return false;
  }
}

/// Reads without waiting. Not a coroutine, so that the buffer lies on the stack for a moment and
/// not in the frame of every silent connection.
error_code Connection::read_available() {
  std::array<char, kReadBytes> buffer;
  error_code error;
  const size_t count = socket_.read_some(asio::buffer(buffer), error);
  if (!error) input_.append(buffer.data(), count);
  return error;
}

void Connection::begin_answer(const Request& request) {
  request_id_ = request.request_id;
  framing_ = {.request_id = request_id_,
              .keep_alive = request.keep_alive && !shared_.draining,
              .chunked = request.chunked_answers,
              .body_omitted = request.body_omitted};
  status_ = 0;
  output_.clear();
  sent_ = 0;
  streaming_ = false;
  finished_ = false;
  expired_ = false;
  deadline_ = kNever;
  kernel_bytes_.reset();
}

asio::awaitable<void> Connection::answer(Request& request) {
  using namespace asio::experimental::awaitable_operators;
  begin_answer(request);
  const auto begin = std::chrono::steady_clock::now();
  const std::string method = request.method;
  const std::string path = request.path;
  std::unique_ptr<Exchange> exchange = shared_.handler->handle(std::move(request), *this);
  if (finished_) {
    co_await send_queue();
  } else {
    TANDEM_CHECK(exchange != nullptr, "a handler neither answered nor promised to");
    co_await (send_queue() || watch_peer());
  }
  deadline_ = kNever;
  if (peer_gone_) {
    ++(expired_ ? shared_.counters.slow_readers : shared_.counters.disconnects);
  }
  using Milliseconds = std::chrono::milliseconds;
  shared_.handler->on_answered({.method = method,
                                .path = path,
                                .request_id = request_id_,
                                .status = status_,
                                .client_gone = peer_gone_,
                                .duration = std::chrono::duration_cast<Milliseconds>(
                                    std::chrono::steady_clock::now() - begin),
                                .exchange = exchange.get()});
  exchange.reset();  // cancels what is still running
  std::string().swap(output_);
}

asio::awaitable<void> Connection::refuse(const Refusal& refusal) {
  Request unknown{.request_id = make_request_id(), .keep_alive = false};
  begin_answer(unknown);
  respond(shared_.handler->describe(refusal));
  co_await send_queue();
  if (!peer_gone_) co_await close_gently();
}

/// Sends until the answer is complete and gone, or nothing can be sent any more.
asio::awaitable<void> Connection::send_queue() {
  while (!peer_gone_) {
    if (sent_ < output_.size()) {
      error_code error;
      sent_ +=
          socket_.write_some(asio::buffer(output_.data() + sent_, output_.size() - sent_), error);
      if (!error) {
        deadline_ = kNever;
        kernel_bytes_.reset();
        continue;
      }
      if (error == asio::error::would_block) {
        if (deadline_ == kNever) {
          set_deadline(shared_.options.write_stall_ms);
          kernel_bytes_ = bytes_in_kernel();
        }
        co_await socket_.async_wait(tcp::socket::wait_write,
                                    asio::redirect_error(asio::use_awaitable, error));
        if (!error) continue;
      }
      peer_gone_ = true;
      co_return;
    }
    output_.clear();
    sent_ = 0;
    if (finished_) co_return;
    error_code woken;
    wake_.expires_at(kNever);
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, woken));
  }
}

/// Returns when the client is gone. Bytes it sends ahead are kept for the next request.
asio::awaitable<void> Connection::watch_peer() {
  while (input_.size() < kReadAheadBytesMax) {
    if (co_await read_more()) continue;
    const auto cancellation = co_await asio::this_coro::cancellation_state;
    // Cancelled: the answer is complete, and the client is still there.
    if (cancellation.cancelled() == asio::cancellation_type::none) peer_gone_ = true;
    co_return;
  }
  asio::steady_timer never(socket_.get_executor(), kNever);
  error_code ignored;
  co_await never.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> Connection::close_gently() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  set_deadline(kGentleCloseMs);
  size_t dropped = input_.size();
  input_.clear();
  while (dropped < kGentleCloseBytesMax && co_await read_more()) {
    dropped += input_.size();
    input_.clear();
  }
}

void Connection::respond(Response response) {
  TANDEM_CHECK(!streaming_ && !finished_, "a request is answered once");
  append_response(output_, response, framing_);
  status_ = response.status;
  finished_ = true;
  queue_changed();
}

void Connection::start_stream() {
  TANDEM_CHECK(!streaming_ && !finished_, "a request is answered once");
  if (!framing_.chunked) framing_.keep_alive = false;
  append_stream_head(output_, framing_);
  status_ = 200;
  streaming_ = true;
  queue_changed();
}

void Connection::write(std::string_view bytes) {
  TANDEM_CHECK(streaming_ && !finished_, "write() belongs between start_stream() and finish()");
  if (peer_gone_) return;
  if (sent_ > output_.size() / 2) {  // a reader that always lags never empties the queue
    output_.erase(0, sent_);
    sent_ = 0;
  }
  append_chunk(output_, bytes, framing_);
  if (output_.size() - sent_ > shared_.options.stream_queue_bytes_max) cut_slow_reader();
  queue_changed();
}

void Connection::finish() {
  TANDEM_CHECK(streaming_ && !finished_, "finish() ends a stream once");
  append_stream_end(output_, framing_);
  finished_ = true;
  queue_changed();
}

void Connection::queue_changed() {
  last_write_ = std::chrono::steady_clock::now();
  wake_.cancel();
}

void Connection::cut_slow_reader() {
  peer_gone_ = true;
  expired_ = true;
  kernel_bytes_.reset();
  error_code ignored;
  socket_.cancel(ignored);
}

/// What the client has not acknowledged yet of the bytes that the kernel took from us.
int Connection::bytes_in_kernel() {
  int bytes = 0;
  return ioctl(socket_.native_handle(), TIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

void Connection::sweep(TimePoint now) {
  if (kernel_bytes_) {
    // The socket becomes writable only when much of the kernel's buffer is free, megabytes perhaps;
    // a client that takes less at a time is alive all the same.
    const int bytes = bytes_in_kernel();
    if (bytes < *kernel_bytes_) set_deadline(shared_.options.write_stall_ms);
    kernel_bytes_ = bytes;
  }
  if (now >= deadline_) {
    expired_ = true;
    deadline_ = kNever;
    kernel_bytes_.reset();
    error_code ignored;
    socket_.cancel(ignored);
    return;
  }
  const auto silence_max = std::chrono::milliseconds(shared_.options.keep_alive_ms);
  if (streaming_ && !finished_ && !peer_gone_ && output_.empty() &&
      now - last_write_ >= silence_max) {
    write(": keep-alive\n\n");
  }
}

void Connection::drain() {
  error_code ignored;
  if (idle_) socket_.cancel(ignored);
}

void Connection::abort() {
  peer_gone_ = true;
  error_code ignored;
  socket_.close(ignored);
  wake_.cancel();
}

void Connection::set_deadline(int timeout_ms) {
  expired_ = false;
  deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

std::string Connection::make_request_id() {
  return fmt::format("{:016x}-{}", shared_.request_id_prefix, ++shared_.request_ids_made);
}

}  // namespace tandem::server::http
