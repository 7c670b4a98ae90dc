#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/request.h"
#include "server/access_log.h"
#include "server/http/http_server.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::server {

/// The OpenAI-compatible front end of one engine. Everything passed to create() outlives it; the
/// engine must still run when it is destroyed, so that it can end what was cancelled.
class Server {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 8000;                  ///< 0: any free one
    std::vector<std::string> model_names;  ///< at least one; the first is shown in answers' default
    std::string version = "unknown";       ///< GET /version
    uint32_t model_length_max = 0;         ///< prompt and answer together, in tokens
    std::vector<TokenId> stop_tokens;      ///< the model's own
    engine::SamplingParams sampling;       ///< what a request gets when it does not say
    AccessLog access_log = AccessLog::kNone;
    // Limits:
    uint32_t n_max = 64;         ///< choices per prompt
    uint32_t choices_max = 256;  ///< prompts x n of one request
    uint32_t connections_max = 12'000;
    size_t header_bytes_max = 16u << 10;
    size_t body_bytes_max = 8u << 20;          ///< of one request
    size_t bodies_bytes_max = 512u << 20;      ///< of all requests being read
    size_t stream_queue_bytes_max = 4u << 20;  ///< unread bytes of one stream
    size_t preparations_max = 1024;            ///< requests that wait to be tokenized
    int text_threads_count = 2;                ///< for parsing, templates and tokenizing
    int socket_send_bytes = 0;  ///< the kernel's buffer per connection; 0: its default
    // Timeouts:
    int idle_ms = 75'000;         ///< between requests of a connection
    int header_ms = 10'000;       ///< first byte of a request -> end of its head
    int body_ms = 60'000;         ///< end of the head -> end of the body
    int write_stall_ms = 30'000;  ///< a client that reads nothing for so long is cut off
    int keep_alive_ms = 10'000;   ///< silence in a stream before a comment line
  };

  /// Binds and listens, without an engine: who cannot have its port learns it before it loads a
  /// model. Clients that come meanwhile wait.
  static Result<std::unique_ptr<http::HttpServer>> listen(const Options& options);
  /// Serves where `listening` does. `chat_template` may be null: chats are refused then.
  static Result<std::unique_ptr<Server>> create(Options options,
                                                std::unique_ptr<http::HttpServer> listening,
                                                engine::EngineClient& engine,
                                                const text::Tokenizer& tokenizer,
                                                text::ChatTemplate* chat_template);
  /// Both.
  static Result<std::unique_ptr<Server>> create(Options options, engine::EngineClient& engine,
                                                const text::Tokenizer& tokenizer,
                                                text::ChatTemplate* chat_template);
  ~Server();

  uint16_t port() const;
  /// Serves on the calling thread until stop(), or until everything has drained. Call once.
  void run();
  /// Stops accepting; running answers finish, then run() returns. Any thread, signal handlers too.
  void drain();
  /// Cuts all connections; run() returns. Any thread, signal handlers too.
  void stop();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::server
