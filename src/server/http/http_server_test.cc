// Goal: the HTTP layer keeps its limits and timeouts, frames answers rightly and survives every
// client, over real sockets.
// Method: a scripted handler behind a server with short timeouts; a blocking client of its own
// sends exact bytes. Events are awaited, never slept for, except where silence is the point.
#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "server/testing/http_server_fixture.h"

namespace tandem::server::http {
namespace {

using server::testing::HttpClient;
using ::testing::HasSubstr;

TEST_F(HttpServerTest, AnswersSeveralRequestsOnOneConnection) {
  start();
  HttpClient one = client();
  for (int i = 0; i < 3; ++i) {
    const auto answer = one.call("POST", "/echo?x=1", "body" + std::to_string(i));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "POST /echo body" + std::to_string(i));
    EXPECT_EQ(answer.header("Connection"), "keep-alive");
  }
  EXPECT_EQ(counters().connections_accepted, 1u);
}

TEST_F(HttpServerTest, ReadsBytewiseChunkedAndPipelinedRequests) {
  start();
  HttpClient one = client();
  const std::string chunked =
      "POST /a%2Fb HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  for (const char byte : chunked) one.send(std::string_view(&byte, 1));
  EXPECT_EQ(one.read_answer().body, "POST /a/b abcde");
  one.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(one.read_answer().body, "GET /1 ");
  EXPECT_EQ(one.read_answer().body, "GET /2 ");
}

TEST_F(HttpServerTest, EchoesUsableRequestIdsAndMakesOthers) {
  start();
  HttpClient one = client();
  EXPECT_EQ(one.call("GET", "/", "", "X-Request-Id: abc-1\r\n").header("X-Request-Id"), "abc-1");
  const std::string made = one.call("GET", "/").header("X-Request-Id");
  EXPECT_GT(made.size(), 10u);
  const std::string hostile = "X-Request-Id: " + std::string(200, 'a') + "\r\n";
  EXPECT_LT(one.call("GET", "/", "", hostile).header("X-Request-Id").size(), 100u);
}

TEST_F(HttpServerTest, HeadHasNoBodyAndOldClientsGetAClosedConnection) {
  start();
  HttpClient one = client();
  const auto head = one.call("HEAD", "/x");
  EXPECT_EQ(head.header("Content-Length"), "7");
  EXPECT_EQ(one.call("GET", "/y").body, "GET /y ");
  HttpClient old = client();
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  await([&] { return handler_.streams_open == 1; });
  write("data: 1\n\n");
  on_loop([&] { handler_.stream->finish(); });
  const auto answer = old.read_answer();
  EXPECT_EQ(answer.header("Transfer-Encoding"), "");
  EXPECT_EQ(answer.body, "data: 1\n\n");
}

TEST_F(HttpServerTest, AnswersExpectContinue) {
  start();
  HttpClient one = client();
  one.send("POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(one.read_head().status, 100);
  one.send("ok");
  EXPECT_EQ(one.read_answer().body, "POST /e ok");
}

TEST_F(HttpServerTest, RefusesWhatIsTooLargeOrNotHttp) {
  start({.limits = {.header_bytes_max = 1000, .body_bytes_max = 100}});
  struct Case {
    std::string bytes;
    int status;
  };
  const Case cases[] = {
      {"GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(2000, 'a') + "\r\n\r\n", 431},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'a'), 413},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n80\r\n" +
           std::string(128, 'a'),
       413},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: "
       "chunked\r\n\r\n0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400},
      {"hello\r\n\r\n", 400},
      {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), 400},  // TLS
      {"GET / HTTP/2.0\r\n\r\n", 400},
  };
  for (const Case& bad : cases) {
    HttpClient one = client();
    one.send(bad.bytes);
    const auto answer = one.read_answer();
    EXPECT_EQ(answer.status, bad.status) << bad.bytes.substr(0, 60);
    EXPECT_EQ(answer.header("Connection"), "close");
    EXPECT_TRUE(one.wait_for_close());
  }
  EXPECT_EQ(handler_.requests, 0);
}

TEST_F(HttpServerTest, ALargeBodyGetsItsAnswerAlthoughItIsNotRead) {
  start({.limits = {.body_bytes_max = 1000}});
  HttpClient one = client();
  one.send_request("POST", "/", std::string(4 << 20, 'a'));
  EXPECT_EQ(one.read_answer().status, 413);
}

TEST_F(HttpServerTest, BoundsTheBodiesOfAllRequestsTogether) {
  start({.bodies_bytes_max = 300'000});
  HttpClient first = client();
  HttpClient second = client();
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 250000\r\n\r\n";
  first.send(head + std::string(200'000, 'a'));
  second.send(head + std::string(200'000, 'a'));
  // One of the two is refused; the other one then fits.
  std::atomic<int> statuses = 0;
  std::thread finish_first([&] {
    first.send(std::string(50'000, 'a'));
    statuses += first.read_answer().status;
  });
  second.send(std::string(50'000, 'a'));
  statuses += second.read_answer().status;
  finish_first.join();
  EXPECT_TRUE(statuses == 200 + 429 || statuses == 400) << statuses;
  EXPECT_EQ(client().call("GET", "/").status, 200);
}

TEST_F(HttpServerTest, EndsSlowHeadsSlowBodiesAndIdleConnections) {
  start({.idle_ms = 150, .header_ms = 100, .body_ms = 100});
  HttpClient head = client();
  head.send("GET / HTT");
  HttpClient body = client();
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  HttpClient silent = client();
  EXPECT_EQ(head.read_answer().status, 408);
  EXPECT_EQ(body.read_answer().status, 408);
  EXPECT_TRUE(silent.wait_for_close());
  HttpClient after = client();
  EXPECT_EQ(after.call("GET", "/").status, 200);
  EXPECT_TRUE(after.wait_for_close());
  EXPECT_EQ(counters().read_timeouts, 2u);
  EXPECT_EQ(handler_.requests, 1);
}

TEST_F(HttpServerTest, RefusesConnectionsBeyondTheLimit) {
  start({.connections_max = 3});
  std::vector<HttpClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(client());
    EXPECT_EQ(clients.back().call("GET", "/").status, 200);
  }
  EXPECT_EQ(client().read_answer().status, 503);
  clients.pop_back();
  await([&] { return counters().connections_open == 2; });
  EXPECT_EQ(client().call("GET", "/").status, 200);
}

TEST_F(HttpServerTest, DrainClosesIdleConnectionsAndFinishesStreams) {
  start();
  HttpClient idle = client();
  EXPECT_EQ(idle.call("GET", "/").status, 200);
  HttpClient busy = client();
  busy.send_request("GET", "/stream");
  await([&] { return handler_.streams_open == 1; });
  server_->drain();
  EXPECT_TRUE(idle.wait_for_close());
  EXPECT_FALSE(client().connected());
  write("last words");
  on_loop([&] { handler_.stream->finish(); });
  const auto answer = busy.read_answer();
  EXPECT_EQ(answer.body, "last words");
  EXPECT_TRUE(busy.wait_for_close());
  thread_.join();  // run() has returned
  server_.reset();
}

TEST_F(HttpServerTest, StopCutsEverything) {
  start();
  HttpClient busy = client();
  busy.send_request("GET", "/stream");
  HttpClient idle = client();
  HttpClient half = client();
  half.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
  await([&] { return handler_.streams_open == 1; });
  server_->stop();
  thread_.join();
  EXPECT_EQ(handler_.streams_open, 0);
  server_.reset();
}

TEST_F(HttpServerTest, APortInUseIsOneClearError) {
  start();
  const auto second = HttpServer::create({.port = server_->port()});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().what, HasSubstr("--port"));
}

}  // namespace
}  // namespace tandem::server::http
