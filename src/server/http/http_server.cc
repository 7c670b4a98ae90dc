#include "server/http/http_server.h"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <random>
#include <vector>

#include "server/http/connection.h"

namespace tandem::server::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kBacklog = 4096;
/// After a failed accept (out of file descriptors, as a rule) the next try waits.
constexpr auto kAcceptBackoff = std::chrono::milliseconds(100);
constexpr auto kAcceptLogInterval = std::chrono::seconds(10);
// What drain() and stop() add to the event counter.
constexpr uint64_t kDrainSignal = 1;
constexpr uint64_t kStopSignal = uint64_t{1} << 32;

/// Timeouts are looked at so often: an eighth of the shortest, within reason.
std::chrono::milliseconds sweep_interval(const HttpServer::Options& options) {
  const int shortest = std::min({options.idle_ms, options.header_ms, options.body_ms,
                                 options.write_stall_ms, options.keep_alive_ms});
  return std::chrono::milliseconds(std::clamp(shortest / 8, 5, 500));
}

void warn_about_descriptors(uint32_t connections_max) {
  constexpr uint64_t kOtherDescriptors = 64;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur < connections_max + kOtherDescriptors) {
    spdlog::warn("http_descriptors_low limit_count={} connections_max={} fix=\"ulimit -n {}\"",
                 limit.rlim_cur, connections_max, connections_max + kOtherDescriptors);
  }
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(Options given)
      : acceptor(context), signals(context), sweep_timer(context), backoff_timer(context) {
    std::random_device device;
    shared.request_id_prefix = (uint64_t{device()} << 32) | device();
    shared.options = std::move(given);
  }

  Result<void> listen();
  asio::awaitable<void> accept_all();
  asio::awaitable<void> hear_signals();
  asio::awaitable<void> sweep_all();
  asio::awaitable<void> serve_one(tcp::socket socket);
  void accepted(tcp::socket socket);
  void note_accept_error(const error_code& error);
  void begin_drain();
  void end_all();
  void leave_when_drained();
  template <typename Coroutine>
  void spawn(Coroutine coroutine);

  asio::io_context context{1};  // one thread runs it
  Shared shared;
  tcp::acceptor acceptor;
  asio::posix::stream_descriptor signals;  // an eventfd
  int signals_fd = -1;                     // the same, for signal handlers
  asio::steady_timer sweep_timer;
  asio::steady_timer backoff_timer;
  uint16_t port = 0;
  bool sweeping = false;
  Clock::time_point accept_logged;
};

Result<void> HttpServer::Impl::listen() {
  const Options& options = shared.options;
  const auto failed = [&](const error_code& error) {
    return make_error(Code::kUnavailable,
                      fmt::format("cannot listen on {}:{}: {}; choose another --host or --port",
                                  options.host, options.port, error.message()));
  };
  error_code error;
  const auto found = tcp::resolver(context).resolve(
      options.host, std::to_string(options.port),
      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) return failed(error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  if (acceptor.open(endpoint.protocol(), error)) return failed(error);
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (options.socket_send_bytes > 0) {  // accepted sockets inherit it
    acceptor.set_option(asio::socket_base::send_buffer_size(options.socket_send_bytes), error);
  }
  if (acceptor.bind(endpoint, error)) return failed(error);
  if (acceptor.listen(kBacklog, error)) return failed(error);
  port = acceptor.local_endpoint(error).port();

  signals_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (signals_fd < 0) {
    return make_error(Code::kResourceExhausted, "eventfd() failed: raise the limit of open files");
  }
  signals.assign(signals_fd);
  return {};
}

template <typename Coroutine>
void HttpServer::Impl::spawn(Coroutine coroutine) {
  asio::co_spawn(context, std::move(coroutine), [](std::exception_ptr failure) {
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& thrown) {  // memory ran out, or a defect: only this task ends
      spdlog::error("http_task_failed error=\"{}\"", thrown.what());
    }
  });
}

asio::awaitable<void> HttpServer::Impl::accept_all() {
  while (acceptor.is_open()) {
    error_code error;
    tcp::socket socket =
        co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor.is_open()) co_return;
    if (!error) {
      accepted(std::move(socket));
      continue;
    }
    note_accept_error(error);
    backoff_timer.expires_after(kAcceptBackoff);
    co_await backoff_timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

void HttpServer::Impl::note_accept_error(const error_code& error) {
  ++shared.counters.accept_errors;
  const auto now = Clock::now();
  if (accept_logged != Clock::time_point() && now - accept_logged < kAcceptLogInterval) return;
  accept_logged = now;
  spdlog::warn("http_accept_failed error=\"{}\" connections_open={} fix=\"ulimit -n\"",
               error.message(), shared.counters.connections_open);
}

void HttpServer::Impl::accepted(tcp::socket socket) {
  ++shared.counters.connections_accepted;
  if (shared.connections.size() >= shared.options.connections_max) {
    ++shared.counters.connections_refused;
    std::string answer;
    append_response(answer,
                    shared.handler->describe({.status = 503,
                                              .code = "too_many_connections",
                                              .message = "All connections are taken. Try again."}),
                    {.request_id = "none", .keep_alive = false});
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(answer), ignored);  // a new socket's buffer has room
    return;
  }
  spawn(serve_one(std::move(socket)));
  if (!sweeping) {
    sweeping = true;
    spawn(sweep_all());
  }
}

asio::awaitable<void> HttpServer::Impl::serve_one(tcp::socket socket) {
  {
    Connection connection(std::move(socket), shared);
    co_await connection.serve();
  }
  leave_when_drained();
}

/// Runs while there are connections, so that a server without clients sleeps.
asio::awaitable<void> HttpServer::Impl::sweep_all() {
  const auto interval = sweep_interval(shared.options);
  do {
    error_code ended;
    sweep_timer.expires_after(interval);
    co_await sweep_timer.async_wait(asio::redirect_error(asio::use_awaitable, ended));
    // A sweep resumes no coroutine by itself, so the set does not change under the loop.
    const auto now = Clock::now();
    for (Connection* connection : shared.connections) connection->sweep(now);
  } while (!shared.connections.empty());
  sweeping = false;
}

asio::awaitable<void> HttpServer::Impl::hear_signals() {
  while (signals.is_open()) {
    error_code error;
    co_await signals.async_wait(asio::posix::stream_descriptor::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
    uint64_t sum = 0;
    if (error || read(signals_fd, &sum, sizeof(sum)) != sizeof(sum)) continue;
    begin_drain();
    if (sum >= kStopSignal) end_all();
    leave_when_drained();
  }
}

void HttpServer::Impl::begin_drain() {
  if (shared.draining) return;
  shared.draining = true;
  error_code ignored;
  acceptor.close(ignored);
  backoff_timer.cancel();
  for (Connection* connection : shared.connections) connection->drain();
}

void HttpServer::Impl::end_all() {
  for (Connection* connection : shared.connections) connection->abort();
}

/// Ends what keeps the context busy, so that run() returns.
void HttpServer::Impl::leave_when_drained() {
  if (!shared.draining || !shared.connections.empty()) return;
  sweep_timer.cancel();
  error_code ignored;
  signals.cancel(ignored);
  context.stop();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::create(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  TANDEM_TRY(impl->listen());
  warn_about_descriptors(impl->shared.options.connections_max);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const {
  return impl_->port;
}

void HttpServer::run(Handler& handler) {
  impl_->shared.handler = &handler;
  impl_->spawn(impl_->accept_all());
  impl_->spawn(impl_->hear_signals());
  impl_->context.run();
}

void HttpServer::drain() {
  // A write to an eventfd is allowed in signal handlers; it can only fail when the counter is full.
  [[maybe_unused]] const ssize_t written =
      ::write(impl_->signals_fd, &kDrainSignal, sizeof(kDrainSignal));
}

void HttpServer::stop() {
  [[maybe_unused]] const ssize_t written =
      ::write(impl_->signals_fd, &kStopSignal, sizeof(kStopSignal));
}

void HttpServer::post(std::unique_ptr<Task> task) {
  asio::post(impl_->context, [task = std::move(task)] { task->run(); });
}

bool HttpServer::draining() const {
  return impl_->shared.draining;
}

const HttpServer::Counters& HttpServer::counters() const {
  return impl_->shared.counters;
}

}  // namespace tandem::server::http
