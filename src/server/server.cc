#include "server/server.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "server/api.h"
#include "server/event_router.h"
#include "server/http/http_server.h"
#include "server/metrics.h"
#include "server/offload.h"
#include "server/worker_pool.h"

namespace tandem::server {

namespace {

/// How long an engine may take to end cancelled requests when the server is destroyed.
constexpr int kEngineEndMs = 10'000;

http::HttpServer::Options http_options(const Server::Options& options) {
  return {.host = options.host,
          .port = options.port,
          .connections_max = options.connections_max,
          .limits = {.header_bytes_max = options.header_bytes_max,
                     .body_bytes_max = options.body_bytes_max},
          .bodies_bytes_max = options.bodies_bytes_max,
          .stream_queue_bytes_max = options.stream_queue_bytes_max,
          .socket_send_bytes = options.socket_send_bytes,
          .idle_ms = options.idle_ms,
          .header_ms = options.header_ms,
          .body_ms = options.body_ms,
          .write_stall_ms = options.write_stall_ms,
          .keep_alive_ms = options.keep_alive_ms};
}

openai::Rules rules_of(const Server::Options& options, const text::Tokenizer& tokenizer) {
  return {.model_names = options.model_names,
          .model_length_max = options.model_length_max,
          .vocabulary_size = tokenizer.vocabulary_size(),
          .n_max = options.n_max,
          .choices_max = options.choices_max,
          .sampling = options.sampling};
}

Result<void> check(const Server::Options& options) {
  const auto wrong = [](const char* what) {
    return make_error(Code::kInvalidArgument, std::string("server options: ") + what);
  };
  if (options.model_names.empty()) return wrong("model_names is empty: name the model");
  if (options.model_length_max < 2) return wrong("model_length_max must be at least 2");
  if (options.n_max < 1 || options.choices_max < options.n_max) {
    return wrong("n_max must be at least 1 and at most choices_max");
  }
  if (options.text_threads_count < 1) return wrong("text_threads_count must be at least 1");
  if (options.connections_max < 1) return wrong("connections_max must be at least 1");
  return {};
}

}  // namespace

/// Declared in the order of use: what comes later refers to what comes earlier, and is destroyed
/// first. So the workers end before the loop that they post to.
struct Server::Impl {
  Impl(Options given, std::unique_ptr<http::HttpServer> listening, engine::EngineClient& engine,
       const text::Tokenizer& tokenizer, text::ChatTemplate* chat_template)
      : options(std::move(given)),
        rules(rules_of(options, tokenizer)),
        http(std::move(listening)),
        router(std::make_unique<EventRouter>(engine, *http)),
        metrics(options.model_names.front()),
        pool({.threads_count = options.text_threads_count,
              .queue_tasks_max = options.preparations_max}),
        offload(pool, *http),
        services{.text = {.rules = rules, .tokenizer = tokenizer, .chat_template = chat_template},
                 .stop_tokens = options.stop_tokens,
                 .offload = offload,
                 .router = *router,
                 .metrics = metrics},
        api(options, engine, services, *http) {}

  ~Impl() {
    if (router->wait_until_unused(kEngineEndMs)) return;
    // The engine may still call these: keeping them for ever is the lesser harm.
    spdlog::error("engine_did_not_end_requests waited_ms={}", kEngineEndMs);
    static_cast<void>(router.release());
    static_cast<void>(http.release());
  }

  const Options options;
  const openai::Rules rules;
  std::unique_ptr<http::HttpServer> http;
  std::unique_ptr<EventRouter> router;
  Metrics metrics;
  WorkerPool pool;
  Offload offload;
  GenerationServices services;
  Api api;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<http::HttpServer>> Server::listen(const Options& options) {
  return http::HttpServer::create(http_options(options));
}

Result<std::unique_ptr<Server>> Server::create(Options options, engine::EngineClient& engine,
                                               const text::Tokenizer& tokenizer,
                                               text::ChatTemplate* chat_template) {
  TANDEM_TRY(check(options));
  auto listening = TANDEM_TRY(listen(options));
  return create(std::move(options), std::move(listening), engine, tokenizer, chat_template);
}

Result<std::unique_ptr<Server>> Server::create(Options options,
                                               std::unique_ptr<http::HttpServer> listening,
                                               engine::EngineClient& engine,
                                               const text::Tokenizer& tokenizer,
                                               text::ChatTemplate* chat_template) {
  TANDEM_TRY(check(options));
  return std::unique_ptr<Server>(new Server(std::make_unique<Impl>(
      std::move(options), std::move(listening), engine, tokenizer, chat_template)));
}

uint16_t Server::port() const {
  return impl_->http->port();
}

void Server::run() {
  impl_->http->run(impl_->api);
}

void Server::drain() {
  impl_->http->drain();
}

void Server::stop() {
  impl_->http->stop();
}

}  // namespace tandem::server
