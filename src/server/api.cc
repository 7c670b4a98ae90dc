#include "server/api.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "server/openai/json_text.h"

namespace tandem::server {

using openai::ApiError;
using openai::Endpoint;

namespace {

constexpr std::string_view kModelsPrefix = "/v1/models/";

struct Route {
  std::string_view method;
  std::string_view path;
  std::string_view handler;  // its label in the metrics
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", "chat_completions"},
    {"POST", "/v1/completions", "completions"},
    {"POST", "/tokenize", "tokenize"},
    {"POST", "/detokenize", "detokenize"},
    {"GET", "/v1/models", "models"},
    {"GET", "/health", "probes"},
    {"GET", "/ready", "probes"},
    {"GET", "/live", "probes"},
    {"GET", "/version", "probes"},
    {"GET", "/metrics", "metrics"},
};

const Route* find_route(std::string_view path) {
  static constexpr Route kOneModel{"GET", kModelsPrefix, "models"};
  const auto* found = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                   [path](const Route& route) { return route.path == path; });
  if (found != std::end(kRoutes)) return found;
  return path.starts_with(kModelsPrefix) ? &kOneModel : nullptr;
}

ApiError unknown_path(const http::Request& request) {
  return {.status = 404,
          .message = fmt::format("There is no {} {}. The API starts at POST /v1/chat/completions.",
                                 request.method, request.path.substr(0, 256)),
          .code = "unknown_path"};
}

ApiError draining_error() {
  return {.status = 503,
          .message = "The server is shutting down. Try another one.",
          .code = "draining",
          .retry_after_s = 5};
}

/// The work behind /tokenize and /detokenize.
class Conversion final : public http::Exchange {
 public:
  using Result = openai::ApiResult<std::string>;

  Conversion(GenerationServices& services, bool to_tokens, std::string body,
             http::Responder& responder)
      : services_(services), to_tokens_(to_tokens), responder_(responder) {
    pending_ = services.offload.start<Result>(
        [text = services.text, to_tokens, body = std::move(body)] {
          return to_tokens ? openai::tokenize(body, text) : openai::detokenize(body, text);
        },
        [this](Result result) { answer(std::move(result)); });
    if (!pending_) {
      answer(full_of_bodies());
    }
  }

 private:
  void answer(Result result) {
    http::Response response;
    if (const auto* error = std::get_if<ApiError>(&result)) {
      response = error_response(*error);
    } else {
      response.body = std::move(std::get<std::string>(result));
    }
    services_.metrics.on_answer(to_tokens_ ? "tokenize" : "detokenize", response.status);
    responder_.respond(std::move(response));
  }

  GenerationServices& services_;
  const bool to_tokens_;
  http::Responder& responder_;
  std::unique_ptr<Offload::Pending> pending_;
};

}  // namespace

Api::Api(const Server::Options& options, engine::EngineClient& engine, GenerationServices& services,
         const http::HttpServer& server)
    : options_(options),
      engine_(engine),
      services_(services),
      server_(server),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {
  std::random_device device;
  std::seed_seq seeds{device(), device(), device(), device()};
  random_.seed(seeds);
}

std::unique_ptr<http::Exchange> Api::handle(http::Request request, http::Responder& responder) {
  const Route* route = find_route(request.path);
  if (route == nullptr || route->method != request.method) {
    ApiError error = unknown_path(request);
    if (route != nullptr) error.status = 405;
    http::Response response = error_response(error);
    if (route != nullptr) {
      response.headers.push_back({"Allow", route->method == "GET" ? "GET, HEAD" : "POST"});
    }
    services_.metrics.on_answer("other", response.status);
    responder.respond(std::move(response));
    return nullptr;
  }
  if (route->handler == "chat_completions") {
    return generate(Endpoint::kChat, std::move(request), responder);
  }
  if (route->handler == "completions") {
    return generate(Endpoint::kCompletion, std::move(request), responder);
  }
  if (route->handler == "tokenize" || route->handler == "detokenize") {
    return convert(route->handler == "tokenize", std::move(request), responder);
  }
  http::Response response = answer_get(route->handler, request.path);
  services_.metrics.on_answer(route->handler, response.status);
  responder.respond(std::move(response));
  return nullptr;
}

http::Response Api::answer_get(std::string_view handler, const std::string& path) {
  if (handler == "metrics") {
    return {.body = services_.metrics.expose(engine_.status(), server_.counters()),
            .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  }
  if (handler == "models") {
    return path == "/v1/models" ? models()
                                : model(std::string_view(path).substr(kModelsPrefix.size()));
  }
  if (path == "/health") return health();
  if (path == "/ready") return ready();
  if (path == "/live") return {.body = R"({"status":"ok"})"};
  std::string body = R"({"version":)";
  openai::append_json_string(body, options_.version);
  return {.body = body + "}"};
}

http::Response Api::describe(const http::Refusal& refusal) {
  services_.metrics.on_answer("other", refusal.status);
  const int retry_after_s = refusal.status == 429 || refusal.status == 503 ? 1 : 0;
  return error_response({.status = refusal.status,
                         .message = refusal.message,
                         .code = refusal.code,
                         .retry_after_s = retry_after_s});
}

void Api::on_answered(const http::Answered& answered) {
  if (options_.access_log == AccessLog::kNone) return;
  const Route* route = find_route(answered.path);
  const bool is_probe =
      route != nullptr && (route->handler == "probes" || route->handler == "metrics");
  if (is_probe && options_.access_log != AccessLog::kAll) return;
  spdlog::info("{}", access_line(answered));
}

std::unique_ptr<http::Exchange> Api::generate(Endpoint endpoint, http::Request request,
                                              http::Responder& responder) {
  if (server_.draining()) {
    services_.metrics.on_answer(endpoint == Endpoint::kChat ? "chat_completions" : "completions",
                                503);
    responder.respond(error_response(draining_error()));
    return nullptr;
  }
  const char* prefix = endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-";
  return std::make_unique<Generation>(
      services_,
      Generation::Origin{.endpoint = endpoint,
                         .request_id = std::move(request.request_id),
                         .answer_id = prefix + random_hex(),
                         .seed = random_()},
      std::move(request.body), responder);
}

std::unique_ptr<http::Exchange> Api::convert(bool to_tokens, http::Request request,
                                             http::Responder& responder) {
  return std::make_unique<Conversion>(services_, to_tokens, std::move(request.body), responder);
}

namespace {

void append_model(std::string& json, const std::string& name, const Server::Options& options,
                  int64_t created) {
  json += "{\"id\":";
  openai::append_json_string(json, name);
  json += ",\"object\":\"model\",\"created\":";
  openai::append_json_integer(json, created);
  json += ",\"owned_by\":\"tandem\",\"root\":";
  openai::append_json_string(json, options.model_names.front());
  json += ",\"parent\":null,\"max_model_len\":";
  openai::append_json_integer(json, options.model_length_max);
  json += '}';
}

}  // namespace

http::Response Api::models() const {
  std::string json = R"({"object":"list","data":[)";
  for (const std::string& name : options_.model_names) {
    if (json.back() == '}') json += ',';
    append_model(json, name, options_, created_);
  }
  return {.body = json + "]}"};
}

http::Response Api::model(std::string_view name) const {
  const auto& names = options_.model_names;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    return error_response({.status = 404,
                           .message = fmt::format(
                               "The model \"{}\" is not served here. GET /v1/models lists what is.",
                               name.substr(0, 256)),
                           .param = "model",
                           .code = "model_not_found"});
  }
  std::string json;
  append_model(json, *found, options_, created_);
  return {.body = std::move(json)};
}

http::Response Api::health() const {
  const engine::EngineStatus status = engine_.status();
  if (status.ready && status.reason.empty()) return {.body = R"({"status":"ok"})"};
  std::string body =
      status.ready ? R"({"status":"degraded","reason":)" : R"({"status":"unhealthy","reason":)";
  openai::append_json_string(body, status.reason);
  if (status.ready) {
    body += R"(,"lost_ranks":[)";
    for (const std::string& rank : status.lost_ranks) {
      if (body.back() != '[') body += ',';
      openai::append_json_string(body, rank);
    }
    body += ']';
  }
  // What can still answer gets traffic; that something is lost is for people and alerts.
  return {.status = status.ready ? 200 : 503, .body = body + "}"};
}

http::Response Api::ready() const {
  if (server_.draining()) return {.status = 503, .body = R"({"status":"draining"})"};
  return health();
}

std::string Api::random_hex() {
  return fmt::format("{:016x}{:08x}", random_(), static_cast<uint32_t>(random_()));
}

}  // namespace tandem::server
