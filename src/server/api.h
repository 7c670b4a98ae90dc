#pragma once

#include <memory>
#include <random>
#include <string>

#include "server/generation.h"
#include "server/http/http_server.h"
#include "server/server.h"

namespace tandem::server {

/// The endpoints: finds the one a request means and answers it. I/O thread only.
class Api final : public http::Handler {
 public:
  Api(const Server::Options& options, engine::EngineClient& engine, GenerationServices& services,
      const http::HttpServer& server);

  std::unique_ptr<http::Exchange> handle(http::Request request,
                                         http::Responder& responder) override;
  http::Response describe(const http::Refusal& refusal) override;
  void on_answered(const http::Answered& answered) override;

 private:
  std::unique_ptr<http::Exchange> generate(openai::Endpoint endpoint, http::Request request,
                                           http::Responder& responder);
  std::unique_ptr<http::Exchange> convert(bool to_tokens, http::Request request,
                                          http::Responder& responder);
  http::Response answer_get(std::string_view handler, const std::string& path);
  http::Response models() const;
  http::Response model(std::string_view name) const;
  http::Response health() const;
  http::Response ready() const;
  std::string random_hex();

  const Server::Options& options_;
  engine::EngineClient& engine_;
  GenerationServices& services_;
  const http::HttpServer& server_;
  const int64_t created_;
  std::mt19937_64 random_;
};

}  // namespace tandem::server
