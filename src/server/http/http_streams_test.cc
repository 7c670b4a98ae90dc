// Goal: a stream arrives whole at whoever reads it, however slowly, is ended for who does not, and
// holds no more memory than is unread.
// Method: the scripted server of http_server_test; clients with small windows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "server/testing/http_server_fixture.h"

namespace tandem::server::http {
namespace {

using server::testing::HttpClient;
using ::testing::HasSubstr;

TEST_F(HttpServerTest, StreamsChunksAsTheyAreWritten) {
  start();
  HttpClient one = client();
  one.send_request("GET", "/stream");
  EXPECT_EQ(one.read_head().header("Content-Type"), "text/event-stream; charset=utf-8");
  std::string chunk;
  for (const std::string piece : {"a", "bc", "d"}) {
    write(piece);
    ASSERT_TRUE(one.read_chunk(chunk));
    EXPECT_EQ(chunk, piece);
  }
  on_loop([&] { handler_.stream->finish(); });
  EXPECT_FALSE(one.read_chunk(chunk));
  await([&] { return handler_.streams_open == 0; });
  EXPECT_EQ(one.call("GET", "/again").status, 200);
}

TEST_F(HttpServerTest, FillsSilenceWithComments) {
  start({.keep_alive_ms = 50});
  HttpClient one = client();
  one.send_request("GET", "/stream");
  one.read_head();
  std::string chunk;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(one.read_chunk(chunk));
    EXPECT_EQ(chunk, ": keep-alive\n\n");
  }
}

TEST_F(HttpServerTest, NoticesThatTheClientLeft) {
  start();
  HttpClient one = client();
  one.send_request("GET", "/stream");
  await([&] { return handler_.streams_open == 1; });
  one.close();
  await([&] { return handler_.streams_open == 0; });
  EXPECT_EQ(counters().disconnects, 1u);
}

/// A closed sending side looks like a client that left, so it counts as one: docs/api.md says so.
TEST_F(HttpServerTest, AClientThatEndsItsSendingSideCountsAsGoneUnlessItsAnswerIsReady) {
  start();
  HttpClient quick = client();
  quick.send_request("GET", "/echo");
  quick.half_close();
  EXPECT_EQ(quick.read_answer().body, "GET /echo ");
  HttpClient one = client();
  one.send_request("GET", "/stream");
  await([&] { return handler_.streams_open == 1; });
  one.half_close();
  await([&] { return handler_.streams_open == 0; });
  EXPECT_TRUE(one.wait_for_close());
  EXPECT_EQ(counters().disconnects, 1u);
}

TEST_F(HttpServerTest, KeepsRequestsThatAreSentDuringAStream) {
  start();
  HttpClient one = client();
  one.send_request("GET", "/stream");
  one.send_request("GET", "/next");
  await([&] { return handler_.streams_open == 1; });
  on_loop([&] { handler_.stream->finish(); });
  EXPECT_TRUE(one.read_answer().complete);
  EXPECT_EQ(one.read_answer().body, "GET /next ");
}

TEST_F(HttpServerTest, CutsAReaderThatStalls) {
  start({.socket_send_bytes = 4096, .write_stall_ms = 100});
  HttpClient one = client(4096);
  one.send_request("GET", "/stream");
  await([&] { return handler_.streams_open == 1; });
  for (int i = 0; i < 10; ++i) write(std::string(50'000, 'x'));
  await([&] { return handler_.streams_open == 0; });
  EXPECT_EQ(counters().slow_readers, 1u);
  EXPECT_EQ(client().call("GET", "/").status, 200);
}

TEST_F(HttpServerTest, CutsAReaderWhoseQueueOverflows) {
  start({.stream_queue_bytes_max = 100'000, .socket_send_bytes = 4096});
  HttpClient one = client(4096);
  one.send_request("GET", "/stream");
  await([&] { return handler_.streams_open == 1; });
  for (int i = 0; i < 100 && handler_.streams_open == 1; ++i) write(std::string(50'000, 'x'));
  await([&] { return handler_.streams_open == 0; });
  EXPECT_EQ(counters().slow_readers, 1u);
}

TEST_F(HttpServerTest, ASlowButMovingReaderGetsEverything) {
  start({.socket_send_bytes = 4096, .write_stall_ms = 2000});
  HttpClient one = client(4096);
  one.send_request("GET", "/stream");
  await([&] { return handler_.streams_open == 1; });
  std::string all;
  for (int i = 0; i < 8; ++i) {
    std::string piece(100'000, static_cast<char>('a' + i));
    write(piece);
    all += piece;
  }
  on_loop([&] { handler_.stream->finish(); });
  const auto answer = one.read_answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_TRUE(answer.body == all);
}

/// The kernel calls a socket writable when a third of its buffer is free, and that buffer may hold
/// megabytes: long before that a reader has shown that it is alive.
TEST_F(HttpServerTest, AReaderThatTakesLittleButAllTheTimeIsNotCut) {
  constexpr size_t kPieceBytes = 4000;
  constexpr size_t kPieces = 2000;  // 8 MB, of which the kernel takes up to 4
  start({.stream_queue_bytes_max = 16'000'000, .write_stall_ms = 400});
  HttpClient one = client(4096);
  one.send_request("GET", "/stream");
  await([&] { return handler_.streams_open == 1; });
  on_loop([&] {
    for (size_t i = 0; i < kPieces; ++i) handler_.stream->write(std::string(kPieceBytes, 'x'));
    handler_.stream->finish();
  });
  EXPECT_EQ(one.read_head().status, 200);
  std::string chunk;
  size_t bytes = 0;
  for (int i = 0; i < 60; ++i) {  // three times the timeout
    ASSERT_TRUE(one.read_chunk(chunk));
    bytes += chunk.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_EQ(handler_.streams_open, 1) << "the server still has some of it, so it was blocked";
  EXPECT_EQ(counters().slow_readers, 0u);
  while (one.read_chunk(chunk)) bytes += chunk.size();
  EXPECT_EQ(bytes, kPieces * kPieceBytes);
}

/// The queue of a reader that lags all the time never becomes empty; what was sent must go anyway.
TEST_F(HttpServerTest, ALaggingReaderDoesNotKeepWhatItHasRead) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory for a while";
#endif
  constexpr size_t kPieceBytes = 250'000;
  constexpr size_t kPiecesAhead = 40;  // 10 MB; the kernel takes 5 of them at most
  constexpr size_t kPieces = 800;      // 200 MB in all
  const auto resident_bytes = [] {
    std::ifstream file("/proc/self/statm");
    size_t total = 0, resident = 0;
    file >> total >> resident;
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  };
  start({.stream_queue_bytes_max = 50'000'000});
  HttpClient one = client(200'000);
  one.send_request("GET", "/stream");
  await([&] { return handler_.streams_open == 1; });
  const std::string piece(kPieceBytes, 'x');
  for (size_t i = 0; i < kPiecesAhead; ++i) write(piece);
  EXPECT_EQ(one.read_head().status, 200);
  const size_t before = resident_bytes();
  std::string chunk;
  for (size_t i = 0; i < kPieces; ++i) {
    ASSERT_TRUE(one.read_chunk(chunk));
    ASSERT_EQ(chunk.size(), kPieceBytes);
    write(piece);
  }
  // The queue may double once, and its string doubles when it grows.
  EXPECT_LT(resident_bytes(), before + 60'000'000);
}

}  // namespace
}  // namespace tandem::server::http
