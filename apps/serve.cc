// tandem serve MODEL: one process, one rank, the OpenAI-compatible server.
#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <random>

#include "apps/verbs.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "server/server.h"

namespace tandem::apps {
namespace {

struct ServeOptions {
  LoadOptions load;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::vector<std::string> names;
  uint32_t sequences_max = 32;
  uint32_t step_tokens_max = 512;
  uint32_t queue_requests_max = 1024;
  uint32_t page_tokens = 16;
  uint32_t cache_tokens = 0;
  bool prefix_caching = true;
  uint32_t write_timeout_s = 30;
};

// What a signal handler can reach; set before the handlers, cleared after the server ran.
server::Server* g_server = nullptr;

/// The first signal lets answers finish, the second cuts them.
void on_signal(int) {
  static volatile std::sig_atomic_t signals = 0;
  signals = signals + 1;
  if (signals == 1) {
    g_server->drain();
  } else {
    g_server->stop();
  }
}

void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

engine::Limits limits_of(const ServeOptions& options, const LoadedModel& loaded) {
  engine::Limits limits;
  limits.model_length_max = loaded.model_length_max;
  limits.sequences_max = options.sequences_max;
  limits.step_tokens_max = options.step_tokens_max;
  limits.queue_requests_max = options.queue_requests_max;
  limits.page_tokens = options.page_tokens;
  // Without a wish: four sequences of full length, shared by whoever comes.
  const uint64_t tokens =
      options.cache_tokens != 0 ? options.cache_tokens : 4 * uint64_t{loaded.model_length_max};
  limits.pages_total =
      static_cast<uint32_t>((tokens + options.page_tokens - 1) / options.page_tokens);
  limits.vocabulary_size = static_cast<uint32_t>(loaded.files.config.vocab_size);
  limits.tokenizer_size =
      std::min(limits.vocabulary_size, static_cast<uint32_t>(loaded.tokenizer->vocabulary_size()));
  limits.prefix_caching = options.prefix_caching;
  std::random_device random;
  limits.prefix_seed = uint64_t{random()} << 32 | random();
  return limits;
}

Result<void> serve(ServeOptions& options) {
  raise_open_files();
  if (options.page_tokens == 0 || options.page_tokens > 4096) {
    return make_error(Code::kInvalidArgument, "--block-size must be 1 to 4096 tokens");
  }
  const LoadedModel loaded = TANDEM_TRY(load_model(options.load));
  const engine::Limits limits = limits_of(options, loaded);
  auto runner = TANDEM_TRY(engine::ModelRunner::create(
      *loaded.device, *loaded.model, {.limits = limits, .kv_dtype = loaded.compute}));
  auto engine = TANDEM_TRY(engine::Engine::create({.limits = limits}, *runner));

  server::Server::Options front;
  front.host = options.host;
  front.port = options.port;
  front.model_names = options.names;
  if (front.model_names.empty()) {
    front.model_names.push_back(std::filesystem::path(options.load.model).filename().string());
  }
  front.version = TANDEM_VERSION;
  front.write_stall_ms = static_cast<int>(options.write_timeout_s) * 1000;
  front.model_length_max = limits.model_length_max;
  front.stop_tokens = loaded.stop_tokens;
  const model::GenerationDefaults& defaults = loaded.files.generation;
  front.temperature = defaults.temperature.value_or(front.temperature);
  front.top_k = defaults.top_k.value_or(front.top_k);
  front.top_p = defaults.top_p.value_or(front.top_p);
  auto server = TANDEM_TRY(
      server::Server::create(front, *engine, *loaded.tokenizer, loaded.chat_template.get()));
  g_server = server.get();
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  fmt::print(
      "{} on {}\n"
      "serving at http://{}:{}\n\n"
      "curl http://{}:{}/v1/chat/completions -H 'Content-Type: application/json' -d '{{\n"
      "  \"model\": \"{}\", \"temperature\": 0,\n"
      "  \"messages\": [{{\"role\": \"user\", \"content\": \"What is 12 + 30?\"}}],\n"
      "  \"chat_template_kwargs\": {{\"enable_thinking\": false}}}}'\n",
      front.model_names.front(), loaded.device->describe(), options.host, server->port(),
      options.host, server->port(), front.model_names.front());
  std::fflush(stdout);
  server->run();
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  return {};
}

}  // namespace

Verb add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* verb = app.add_subcommand("serve", "serve a model over an OpenAI-compatible API");
  add_load_flags(*verb, options->load);
  verb->add_option("--host", options->host, "address to listen on");
  verb->add_option("--port", options->port, "port; 0: any free one");
  verb->add_option("--served-model-name", options->names, "name in the API (repeatable)");
  verb->add_option("--max-num-seqs", options->sequences_max, "sequences that run at once");
  verb->add_option("--max-num-batched-tokens", options->step_tokens_max, "tokens of one step");
  verb->add_option("--max-num-queued-reqs", options->queue_requests_max, "requests that may wait");
  verb->add_option("--block-size", options->page_tokens, "tokens of one KV page");
  verb->add_option("--kv-cache-tokens", options->cache_tokens, "tokens the KV cache holds");
  verb->add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options->prefix_caching,
                 "share pages between equal prompts");
  verb->add_option("--write-timeout", options->write_timeout_s,
                   "seconds after which a client that reads nothing of its answer is cut off")
      ->check(CLI::Range(1, 3600));
  return [options] { return serve(*options); };
}

}  // namespace tandem::apps
