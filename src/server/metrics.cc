#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <map>
#include <string_view>

namespace tandem::server {

namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

constexpr std::string_view kHandlers[] = {"chat_completions", "completions", "models",  "tokenize",
                                          "detokenize",       "probes",      "metrics", "other"};
constexpr std::string_view kStatusClasses[] = {"2xx", "4xx", "5xx"};
constexpr std::array<const char*, 4> kOutcomes = {"stop", "length", "abort", "error"};

const Buckets kFirstTokenSeconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                    0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                    20,    40,    80,   160,  640,  2560};
const Buckets kTokenSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                               0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5,   10};
const Buckets kRequestSeconds = {0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                                 10,   15,   20,  30,  40,  50,  60, 120, 240, 480, 960};
const Buckets kTokenCounts = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                              1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
const Buckets kChoiceCounts = {1, 2, 5, 10, 20};

}  // namespace

struct Metrics::Impl {
  explicit Impl(const std::string& model_name) : labels{{"model_name", model_name}} {}

  Counter& counter(const char* name, const char* help, prometheus::Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(more);
  }
  Gauge& gauge(const char* name, const char* help, prometheus::Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(more);
  }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }

  /// Raises a counter to a total that is counted elsewhere.
  static void raise(Counter& counter, double total) {
    const double missing = total - counter.Value();
    if (missing > 0) counter.Increment(missing);
  }

  /// The series of one rank.
  struct Rank {
    Gauge& kv_usage;
    Counter& steps;
    Counter& idle_steps;
    Counter& tokens;
    Counter& expert_pairs;
    std::map<std::string_view, Counter*> wait_seconds;  // by collective
  };
  Rank& rank(const engine::RankStatus& status);
  void show(const engine::RankStatus& status);

  prometheus::Registry registry;
  const prometheus::Labels labels;

  // From the engine's status:
  Gauge& running = gauge("tandem:num_requests_running", "Choices being generated.");
  Gauge& waiting = gauge("tandem:num_requests_waiting", "Choices waiting to be scheduled.");
  Gauge& awaiting_kv =
      gauge("tandem:num_requests_awaiting_kv", "Choices whose prompt another worker computes.");
  Gauge& kv_usage = gauge("tandem:kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.");
  Gauge& pages_leased =
      gauge("tandem:kv_pages_leased", "KV pages kept until another worker has them.");
  Gauge& pages_quarantined =
      gauge("tandem:kv_pages_quarantined", "KV pages kept until no write can land in them.");
  Gauge& ranks_lost = gauge("tandem:ranks_lost", "Ranks that are gone while the others go on.");
  Counter& steps = counter("tandem:engine_steps_total", "Steps of the engine.");
  Counter& preemptions = counter("tandem:num_preemptions_total",
                                 "Choices that lost their pages and were computed again.");
  Counter& prefix_queries =
      counter("tandem:prefix_cache_queries_total", "Prompt tokens looked up in the prefix index.");
  Counter& prefix_hits =
      counter("tandem:prefix_cache_hits_total", "Prompt tokens served by the prefix index.");
  Counter& prompt_tokens =
      counter("tandem:prompt_tokens_total", "Prompt tokens, wherever they came from.");
  Counter& generated_tokens = counter("tandem:generation_tokens_total", "Generated tokens.");
  Counter& prompt_computed = by_source("local_compute");
  Counter& prompt_cached = by_source("local_cache_hit");
  Counter& prompt_transferred = by_source("external_kv_transfer");

  std::map<int, Rank> ranks;

  // From requests:
  std::array<Counter*, kOutcomes.size()> outcomes{};
  Histogram& first_token =
      histogram("tandem:time_to_first_token_seconds", "Arrival of the request to its first token.",
                kFirstTokenSeconds);
  Histogram& inter_token =
      histogram("tandem:inter_token_latency_seconds", "Between tokens of a choice.", kTokenSeconds);
  Histogram& end_to_end =
      histogram("tandem:e2e_request_latency_seconds",
                "Arrival of the request to the end of a choice.", kRequestSeconds);
  Histogram& queue_time = histogram("tandem:request_queue_time_seconds",
                                    "Submission to first scheduling.", kRequestSeconds);
  Histogram& prefill_time = histogram("tandem:request_prefill_time_seconds",
                                      "First scheduling to first token.", kRequestSeconds);
  Histogram& decode_time = histogram("tandem:request_decode_time_seconds",
                                     "First token to last token.", kRequestSeconds);
  Histogram& prompt_length =
      histogram("tandem:request_prompt_tokens", "Prompt tokens per choice.", kTokenCounts);
  Histogram& generated_length =
      histogram("tandem:request_generation_tokens", "Generated tokens per choice.", kTokenCounts);
  Histogram& params_n =
      histogram("tandem:request_params_n", "The parameter n of requests.", kChoiceCounts);
  Histogram& params_tokens_max = histogram("tandem:request_params_max_tokens",
                                           "Most tokens a choice may generate.", kTokenCounts);

  // From sockets:
  std::map<std::pair<std::string, std::string>, Counter*, std::less<>> answers;
  Gauge& connections = gauge("tandem:http_connections_open", "Open client connections.");
  Counter& accepted = counter("tandem:http_connections_total", "Accepted client connections.");
  Counter& refused = counter("tandem:http_connections_refused_total",
                             "Connections beyond the limit, answered with 503.");
  Counter& accept_errors = counter("tandem:http_accept_errors_total",
                                   "Failed accepts; as a rule file descriptors ran out.");
  Counter& read_timeouts =
      counter("tandem:http_read_timeouts_total", "Requests that did not arrive in time.");
  Counter& disconnects = counter("tandem:http_client_disconnects_total",
                                 "Clients that left before their answer was complete.");
  Counter& slow_readers = counter("tandem:http_slow_readers_total",
                                  "Clients cut off because they did not read their answer.");

 private:
  Counter& by_source(const char* source) {
    return counter("tandem:prompt_tokens_by_source_total", "Prompt tokens by where they came from.",
                   {{"source", source}});
  }
};

Metrics::Metrics(const std::string& model_name) : impl_(std::make_unique<Impl>(model_name)) {
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    impl_->outcomes[i] = &impl_->counter("tandem:request_success_total", "Ended choices by reason.",
                                         {{"finished_reason", kOutcomes[i]}});
  }
  for (const std::string_view handler : kHandlers) {
    for (const std::string_view status : kStatusClasses) {
      std::pair key{std::string(handler), std::string(status)};
      impl_->answers[key] = &impl_->counter("tandem:http_requests_total", "Answers by kind.",
                                            {{"handler", key.first}, {"status", key.second}});
    }
  }
}

Metrics::~Metrics() = default;

/// Made when a rank is first heard of, which is at the first scrape.
Metrics::Impl::Rank& Metrics::Impl::rank(const engine::RankStatus& status) {
  const auto found = ranks.find(status.rank);
  if (found != ranks.end()) return found->second;
  const prometheus::Labels own = {{"rank", std::to_string(status.rank)}};
  Rank made{
      .kv_usage =
          gauge("tandem:rank_kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.", own),
      .steps = counter("tandem:rank_steps_total", "Steps of the model on this rank.", own),
      .idle_steps = counter("tandem:rank_idle_steps_total",
                            "Steps that the rank joined without a token of its own group.", own),
      .tokens = counter("tandem:rank_tokens_total", "Tokens that the rank computed.", own),
      .expert_pairs = counter("tandem:rank_expert_pairs_total",
                              "Pairs of token and expert that the rank's experts computed.", own)};
  for (const engine::RankStatus::Wait& wait : status.waits) {
    made.wait_seconds[wait.collective] =
        &counter("tandem:rank_collective_wait_seconds_total", "Time a rank waited for others.",
                 {{"rank", own.at("rank")}, {"collective", std::string(wait.collective)}});
  }
  return ranks.emplace(status.rank, std::move(made)).first->second;
}

void Metrics::Impl::show(const engine::RankStatus& status) {
  Rank& series = rank(status);
  series.kv_usage.Set(
      status.pages_total == 0 ? 0 : static_cast<double>(status.pages_used) / status.pages_total);
  raise(series.steps, static_cast<double>(status.steps));
  raise(series.idle_steps, static_cast<double>(status.idle_steps));
  raise(series.tokens, static_cast<double>(status.tokens));
  raise(series.expert_pairs, static_cast<double>(status.expert_pairs));
  constexpr double kSecondsPerNs = 1e-9;
  for (const engine::RankStatus::Wait& wait : status.waits) {
    raise(*series.wait_seconds.at(wait.collective), static_cast<double>(wait.ns) * kSecondsPerNs);
  }
}

void Metrics::on_request(uint32_t n, uint32_t tokens_max) {
  impl_->params_n.Observe(n);
  impl_->params_tokens_max.Observe(tokens_max);
}

void Metrics::on_first_token(double seconds_since_arrival) {
  impl_->first_token.Observe(seconds_since_arrival);
}

void Metrics::on_later_tokens(double seconds_since_last, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    impl_->inter_token.Observe(seconds_since_last / static_cast<double>(count));
  }
}

void Metrics::on_choice_end(const Choice& choice) {
  impl_->outcomes[static_cast<size_t>(choice.outcome)]->Increment();
  impl_->end_to_end.Observe(choice.seconds_since_arrival);
  impl_->prompt_length.Observe(static_cast<double>(choice.prompt_tokens));
  impl_->generated_length.Observe(static_cast<double>(choice.generated_tokens));
  if (choice.timing == nullptr) return;
  constexpr double kSecondsPerUs = 1e-6;
  impl_->queue_time.Observe(static_cast<double>(choice.timing->queue_us) * kSecondsPerUs);
  impl_->prefill_time.Observe(static_cast<double>(choice.timing->prefill_us) * kSecondsPerUs);
  impl_->decode_time.Observe(static_cast<double>(choice.timing->decode_us) * kSecondsPerUs);
}

void Metrics::on_answer(std::string_view handler, int status) {
  const std::string_view kind = kStatusClasses[status < 400 ? 0 : status < 500 ? 1 : 2];
  const auto found = impl_->answers.find(std::pair{std::string(handler), std::string(kind)});
  if (found != impl_->answers.end()) found->second->Increment();
}

std::string Metrics::expose(const engine::EngineStatus& status,
                            const http::HttpServer::Counters& connections) {
  Impl& impl = *impl_;
  impl.running.Set(status.requests_running);
  impl.waiting.Set(status.requests_waiting);
  impl.awaiting_kv.Set(status.requests_awaiting_kv);
  impl.kv_usage.Set(
      status.pages_total == 0 ? 0 : static_cast<double>(status.pages_used) / status.pages_total);
  impl.pages_leased.Set(status.pages_leased);
  impl.pages_quarantined.Set(status.pages_quarantined);
  impl.ranks_lost.Set(static_cast<double>(status.lost_ranks.size()));
  Impl::raise(impl.steps, static_cast<double>(status.steps));
  Impl::raise(impl.preemptions, static_cast<double>(status.preemptions));
  Impl::raise(impl.prefix_queries, static_cast<double>(status.prefix_query_tokens));
  Impl::raise(impl.prefix_hits, static_cast<double>(status.prefix_hit_tokens));
  Impl::raise(impl.prompt_tokens,
              static_cast<double>(status.prompt_tokens + status.prefix_hit_tokens +
                                  status.imported_tokens));
  Impl::raise(impl.prompt_computed, static_cast<double>(status.prompt_tokens));
  Impl::raise(impl.prompt_cached, static_cast<double>(status.prefix_hit_tokens));
  Impl::raise(impl.prompt_transferred, static_cast<double>(status.imported_tokens));
  Impl::raise(impl.generated_tokens, static_cast<double>(status.generated_tokens));
  for (const engine::RankStatus& rank : status.ranks) impl.show(rank);
  impl.connections.Set(static_cast<double>(connections.connections_open));
  Impl::raise(impl.accepted, static_cast<double>(connections.connections_accepted));
  Impl::raise(impl.refused, static_cast<double>(connections.connections_refused));
  Impl::raise(impl.accept_errors, static_cast<double>(connections.accept_errors));
  Impl::raise(impl.read_timeouts, static_cast<double>(connections.read_timeouts));
  Impl::raise(impl.disconnects, static_cast<double>(connections.disconnects));
  Impl::raise(impl.slow_readers, static_cast<double>(connections.slow_readers));
  return prometheus::TextSerializer().Serialize(impl.registry.Collect());
}

}  // namespace tandem::server
