// Goal: no client (gone, slow, silent, too many) harms the others, and the metrics tell of it.
// Method: the whole server over a scripted engine that can be held still; short timeouts.
#include <sys/resource.h>

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
  late.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) +
            "\r\n\r\n" + body.substr(0, 5));
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

TEST_F(ServerClientsTest, AFullPreparationQueueIs429) {
  start({.preparations_max = 0});
  const auto answer = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.header("Retry-After"), "");
  EXPECT_EQ(post("/tokenize", R"({"prompt":"a"})").status, 429);
}

TEST_F(ServerClientsTest, HoldsTenThousandSilentConnections) {
  // Both ends are in this process, so two descriptors a connection.
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  size_t count = 10'000;
  if (limit.rlim_cur < 2 * count + 200) count = (limit.rlim_cur - 200) / 2;
  start();
  std::vector<HttpClient> silent;
  silent.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    silent.push_back(client());
    ASSERT_TRUE(silent.back().connected()) << i;
  }
  await([&] {
    return metric(R"(tandem:http_connections_open{model_name="tiny"})") >=
           static_cast<double>(count);
  });
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
  EXPECT_EQ(silent.front().call("GET", "/health").status, 200);
  EXPECT_EQ(silent.back().call("GET", "/health").status, 200);
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
