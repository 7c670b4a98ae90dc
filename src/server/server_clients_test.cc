// Goal: no client (gone, slow, silent, too many) harms the others, and the metrics tell of it.
// Method: the whole server over a scripted engine that can be held still; short timeouts.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/testing/server_fixture.h"

namespace tandem::server {
namespace {

using ::testing::HasSubstr;
using testing::HttpClient;
using testing::ServerFixture;

using ServerClientsTest = ServerFixture;

TEST_F(ServerClientsTest, AClientThatLeavesCancelsItsRequests) {
  start();
  engine_->hold_after(0);
  for (const std::string fields : {R"("n":2)", R"("n":2,"stream":true)"}) {
    HttpClient one = client();
    one.send_request("POST", "/v1/chat/completions", chat_body(fields));
    await([&] { return engine_->running_count() == 2; });
    one.close();
    await([&] { return engine_->running_count() == 0; });
  }
  EXPECT_EQ(engine_->cancels_count(), 4u);
  EXPECT_EQ(metric(R"(tandem:request_success_total{finished_reason="abort",model_name="tiny"})"),
            4);
  EXPECT_EQ(metric(R"(tandem:http_client_disconnects_total{model_name="tiny"})"), 2);
}

TEST_F(ServerClientsTest, AClientThatLeavesInTheMiddleOfAStreamCancelsIt) {
  start();
  engine_->hold_after(2);
  HttpClient one = client();
  one.send_request("POST", "/v1/chat/completions", chat_body(R"("stream":true)"));
  one.read_head();
  std::string chunk;
  ASSERT_TRUE(one.read_chunk(chunk));
  one.close();
  await([&] { return engine_->running_count() == 0; });
}

TEST_F(ServerClientsTest, WaitingStreamsAreKeptAlive) {
  start({.keep_alive_ms = 50});
  engine_->hold_after(0);
  HttpClient one = client();
  one.send_request("POST", "/v1/chat/completions", chat_body(R"("stream":true)"));
  one.read_head();
  std::string chunk;
  ASSERT_TRUE(one.read_chunk(chunk));
  EXPECT_EQ(chunk, ": keep-alive\n\n");
  engine_->release();
  std::string rest;
  while (one.read_chunk(chunk)) rest += chunk;
  EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
}

TEST_F(ServerClientsTest, ASlowReaderIsCutAndOthersAreServed) {
  script = [](const engine::Request&) {
    auto script = saying("x");
    script.tokens.assign(100'000, script.tokens.front());
    script.tokens_per_event = 4;
    return script;
  };
  Server::Options options{.socket_send_bytes = 4096, .write_stall_ms = 100};
  start(std::move(options));
  // model_length_max is small, so the stream is long through its number of choices.
  HttpClient slow = client(4096);
  slow.send_request("POST", "/v1/chat/completions",
                    chat_body(R"("stream":true,"n":64,"ignore_eos":true)"));
  await([&] { return metric(R"(tandem:http_slow_readers_total{model_name="tiny"})") == 1; });
  await([&] { return engine_->running_count() == 0; });
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a"})").status, 200);
}

TEST_F(ServerClientsTest, DrainingFinishesStreamsAndRefusesNewWork) {
  start();
  engine_->hold_after(1);
  HttpClient running = client();
  running.send_request("POST", "/v1/chat/completions", chat_body(R"("stream":true)"));
  running.read_head();
  // A request whose head arrived before the drain and whose body comes after it.
  const std::string body = chat_body();
  HttpClient late = client();
  late.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
            std::to_string(body.size()) + "\r\n\r\n" + body.substr(0, 5));
  await([&] { return metric(R"(tandem:http_connections_open{model_name="tiny"})") == 3; });
  server_->drain();
  await([&] { return !client().connected(); });
  late.send(body.substr(5));
  const auto refused = late.read_answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.header("Retry-After"), "");
  engine_->release();
  std::string chunk;
  std::string all;
  while (running.read_chunk(chunk)) all += chunk;
  EXPECT_THAT(all, HasSubstr("data: [DONE]"));
  thread_.join();
}

TEST_F(ServerClientsTest, StoppingCancelsEverything) {
  start();
  engine_->hold_after(0);
  HttpClient one = client();
  one.send_request("POST", "/v1/chat/completions", chat_body(R"("n":5)"));
  await([&] { return engine_->running_count() == 5; });
  server_->stop();
  thread_.join();
  EXPECT_EQ(engine_->cancels_count(), 5u);
  server_.reset();  // waits for the engine's last events
  EXPECT_EQ(engine_->running_count(), 0u);
}

TEST_F(ServerClientsTest, EverySeriesIsThereFromTheStart) {
  start();
  const std::string page = get("/metrics").body;
  for (const char* name :
       {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
        "prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total",
        "generation_tokens_total", "num_preemptions_total", "time_to_first_token_seconds_count",
        "inter_token_latency_seconds_count", "e2e_request_latency_seconds_count",
        "request_queue_time_seconds_count", "request_prefill_time_seconds_count",
        "request_decode_time_seconds_count", "request_prompt_tokens_count",
        "request_generation_tokens_count", "request_params_n_count",
        "request_params_max_tokens_count"}) {
    EXPECT_EQ(metric(std::string("tandem:") + name + R"({model_name="tiny"})"), 0) << name;
  }
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    EXPECT_THAT(page, HasSubstr(std::string("finished_reason=\"") + reason + "\""));
  }
  EXPECT_THAT(page, HasSubstr("# TYPE tandem:time_to_first_token_seconds histogram"));
}

TEST_F(ServerClientsTest, MetricsCountWhatHappened) {
  start();
  post_ok("/v1/chat/completions", chat_body(R"("max_tokens":3)"));
  post("/v1/chat/completions", "{");
  engine_->set_status({.ready = true,
                       .pages_used = 1,
                       .pages_total = 4,
                       .prompt_tokens = 10,
                       .prefix_hit_tokens = 6});
  EXPECT_EQ(metric(R"(tandem:time_to_first_token_seconds_count{model_name="tiny"})"), 1);
  EXPECT_EQ(metric(R"(tandem:inter_token_latency_seconds_count{model_name="tiny"})"), 2);
  EXPECT_EQ(metric(R"(tandem:e2e_request_latency_seconds_count{model_name="tiny"})"), 1);
  EXPECT_EQ(metric(R"(tandem:request_generation_tokens_sum{model_name="tiny"})"), 3);
  EXPECT_EQ(metric(R"(tandem:request_success_total{finished_reason="length",model_name="tiny"})"),
            1);
  EXPECT_EQ(metric(R"(tandem:kv_cache_usage_perc{model_name="tiny"})"), 0.25);
  EXPECT_EQ(metric(R"(tandem:prompt_tokens_total{model_name="tiny"})"), 16);
  EXPECT_EQ(
      metric(R"(tandem:prompt_tokens_by_source_total{model_name="tiny",source="local_cache_hit"})"),
      6);
  EXPECT_EQ(
      metric(
          R"(tandem:http_requests_total{handler="chat_completions",model_name="tiny",status="4xx"})"),
      1);
}

TEST_F(ServerClientsTest, MetricsOfEachRank) {
  start();
  engine::EngineStatus status{.ready = true};
  for (uint64_t rank : {0, 3}) {
    status.ranks.push_back({.rank = static_cast<int>(rank),
                            .pages_used = 1,
                            .pages_total = 4,
                            .steps = 10 + rank,
                            .idle_steps = 2 + rank,
                            .tokens = 500 + rank,
                            .expert_pairs = 4000 + rank,
                            .waits = {{"all_reduce", 1'500'000'000 + rank * 1'000'000'000}}});
  }
  engine_->set_status(status);
  for (int rank : {0, 3}) {
    const std::string labels = R"({model_name="tiny",rank=")" + std::to_string(rank) + R"("})";
    EXPECT_EQ(metric("tandem:rank_kv_cache_usage_perc" + labels), 0.25);
    EXPECT_EQ(metric("tandem:rank_steps_total" + labels), 10 + rank);
    EXPECT_EQ(metric("tandem:rank_idle_steps_total" + labels), 2 + rank);
    EXPECT_EQ(metric("tandem:rank_tokens_total" + labels), 500 + rank);
    EXPECT_EQ(metric("tandem:rank_expert_pairs_total" + labels), 4000 + rank);
    EXPECT_EQ(metric(R"(tandem:rank_collective_wait_seconds_total{collective="all_reduce",)" +
                     labels.substr(1)),
              1.5 + rank);
  }
}

TEST_F(ServerClientsTest, AFullPreparationQueueIs429) {
  start({.preparations_max = 0});
  const auto answer = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.header("Retry-After"), "");
  EXPECT_EQ(error_of(answer)["code"], "queue_full");
  const auto tokenize = post("/tokenize", R"({"prompt":"a"})");
  EXPECT_EQ(tokenize.status, 429);
  EXPECT_EQ(error_of(tokenize)["code"], "queue_full");
}

TEST_F(ServerClientsTest, AFullEngineAnswersAsAFullPreparationQueue) {
  start();
  engine_->refuse(make_error(Code::kResourceExhausted, "5 requests are waiting already"));
  const auto answer = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.header("Retry-After"), "1");
  const Json expected = {{"message", "5 requests are waiting already"},
                         {"type", "rate_limit_error"},
                         {"param", nullptr},
                         {"code", "queue_full"}};
  EXPECT_EQ(error_of(answer), expected);
}

TEST_F(ServerClientsTest, BodiesThatAreTooManyTogetherAre429) {
  start({.body_bytes_max = 1000, .bodies_bytes_max = 500});
  HttpClient one = client();
  // The interim answer says that the head was read, so what follows counts as body.
  one.send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_EQ(one.read_head().status, 100);
  one.send(std::string(600, 'a'));
  const auto answer = one.read_answer();
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.header("Retry-After"), "1");
  EXPECT_EQ(error_of(answer)["code"], "queue_full");
}

/// Another process that opens connections and holds them, so that the descriptors of both ends do
/// not come out of one limit. Made before the server's threads, because it forks.
class SilentClients {
 public:
  explicit SilentClients(size_t count) {
    EXPECT_EQ(pipe(port_pipe_), 0);
    EXPECT_EQ(pipe(result_pipe_), 0);
    process_ = fork();
    if (process_ == 0) hold(count);
  }
  ~SilentClients() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    for (const int fd : {port_pipe_[0], port_pipe_[1], result_pipe_[0], result_pipe_[1]}) {
      ::close(fd);
    }
  }
  SilentClients(const SilentClients&) = delete;
  SilentClients& operator=(const SilentClients&) = delete;

  /// Connects all; returns how many succeeded.
  size_t connect_all(uint16_t port) {
    size_t connected = 0;
    EXPECT_EQ(write(port_pipe_[1], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
    EXPECT_EQ(read(result_pipe_[0], &connected, sizeof(connected)),
              static_cast<ssize_t>(sizeof(connected)));
    return connected;
  }

 private:
  [[noreturn]] void hold(size_t count) {
    uint16_t port = 0;
    if (read(port_pipe_[0], &port, sizeof(port)) != sizeof(port)) _exit(1);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size_t connected = 0;
    for (size_t i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      connected += connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    }
    if (write(result_pipe_[1], &connected, sizeof(connected)) != sizeof(connected)) _exit(1);
    for (;;) pause();
  }

  int port_pipe_[2] = {-1, -1};
  int result_pipe_[2] = {-1, -1};
  pid_t process_ = -1;
};

TEST_F(ServerClientsTest, HoldsTenThousandSilentConnections) {
  constexpr size_t kCount = 10'000;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < kCount + 200) GTEST_SKIP() << "needs a hard limit of 10,200 open files";
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  SilentClients silent(kCount);
  start();
  ASSERT_EQ(silent.connect_all(server_->port()), kCount);
  await([&] { return metric(R"(tandem:http_connections_open{model_name="tiny"})") > kCount; });
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
  EXPECT_EQ(metric(R"(tandem:http_connections_refused_total{model_name="tiny"})"), 0);
}

TEST_F(ServerClientsTest, OutlivesHavingNoDescriptorsLeft) {
  start();
  EXPECT_EQ(get("/health").status, 200);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  HttpClient waiting = client();  // its descriptors exist before the limit falls
  EXPECT_EQ(waiting.call("GET", "/health").status, 200);
  const int next = dup(0);
  ::close(next);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next) + 1;  // one more: the client's end, none for the server
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  HttpClient starved = client();
  EXPECT_TRUE(starved.connected()) << "the kernel completes it; accept() fails";
  starved.send_request("GET", "/health");
  await([&] {
    const std::string page = waiting.call("GET", "/metrics").body;
    return page.find("tandem:http_accept_errors_total{model_name=\"tiny\"} 0") == page.npos;
  });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(starved.read_answer().status, 200);
}

}  // namespace
}  // namespace tandem::server
