// Goal: addresses are read strictly, bytes and descriptors cross a connection, and every wait has
// an end. Method: real sockets of this host, ports chosen by the system.
#include "io/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "io/shared_memory.h"

namespace tandem::io {
namespace {

using testing::HasSubstr;

Deadline soon(int ms = 5000) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

TEST(Endpoint, IsReadStrictly) {
  EXPECT_EQ(parse_endpoint("node-1:29500")->text(), "node-1:29500");
  EXPECT_EQ(parse_endpoint("[::1]:0")->text(), "[::1]:0");
  EXPECT_EQ(parse_endpoint("[::1]:7")->host, "::1");
  for (const char* text : {"", "host", "host:", ":1", "host:65536", "host:-1", "host:1x", "::1:7",
                           "[::1]", "host: 1"}) {
    const auto endpoint = parse_endpoint(text);
    ASSERT_FALSE(endpoint.ok()) << text;
    EXPECT_THAT(endpoint.error().what, HasSubstr("10.0.0.1:29500"));
  }
}

TEST(Socket, BytesCrossAndEveryWaitEnds) {
  auto listener = *Listener::listen_tcp({"127.0.0.1", 0});
  EXPECT_FALSE(listener.accept(soon(1))->has_value());
  Socket near = *Socket::connect_tcp({"127.0.0.1", listener.port()}, soon());
  std::optional<Socket> far = *listener.accept(soon());
  ASSERT_TRUE(far.has_value());

  std::array<std::byte, 4> arrived{};
  EXPECT_EQ(*near.receive_some(arrived), 0u);
  EXPECT_EQ(near.receive(arrived, soon(1)).error().code, Code::kDeadlineExceeded);
  ASSERT_TRUE(far->send(std::as_bytes(std::span("ping", 4)), soon()).ok());
  ASSERT_TRUE(near.receive(arrived, soon()).ok());
  EXPECT_EQ(std::memcmp(arrived.data(), "ping", 4), 0);
  far.reset();
  EXPECT_EQ(near.receive(arrived, soon()).error().code, Code::kUnavailable);
}

TEST(Socket, NobodyThereIsAnError) {
  const int port = Listener::listen_tcp({"127.0.0.1", 0})->port();
  const auto refused = Socket::connect_tcp({"127.0.0.1", port}, soon());
  EXPECT_THAT(refused.error().what, HasSubstr("127.0.0.1:" + std::to_string(port)));
  EXPECT_FALSE(Socket::connect_local("tandem-test-nobody").ok());
}

TEST(Socket, IsNotJoinedToItself) {
  // Callers get even ports while there are some, listeners odd ones. Sooner or later a caller of an
  // even port is given that very port, and then both ends of the connection are one socket.
  int port = 0;
  while (port == 0) {
    const int even = Listener::listen_tcp({"127.0.0.1", 0})->port() & ~1;
    if (Listener::listen_tcp({"127.0.0.1", even}).ok()) port = even;
  }
  for (int attempt = 0; attempt < 30'000; ++attempt) {
    ASSERT_FALSE(Socket::connect_tcp({"127.0.0.1", port}, soon()).ok()) << "attempt " << attempt;
  }
}

TEST(Socket, AnotherUsersProcessIsNobody) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  auto listener = *Listener::listen_local("tandem-test-users");
  const pid_t other = ::fork();
  if (other == 0) {
    // The number of no user of this system.
    const bool is_other = ::setuid(65533) == 0;
    const auto socket = Socket::connect_local("tandem-test-users");
    const bool refused = !socket.ok() && socket.error().code == Code::kNotFound;
    ::_exit(is_other && refused ? 0 : 1);
  }
  int status = -1;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0) << "it found the listener";
  EXPECT_FALSE(listener.accept(soon(50))->has_value()) << "it was accepted";
}

TEST(Socket, MemoryIsHandedOver) {
  auto listener = *Listener::listen_local("tandem-test-memory");
  Socket near = *Socket::connect_local("tandem-test-memory");
  Socket far = std::move(**listener.accept(soon()));
  const SharedMemory made = *SharedMemory::create(4096);
  EXPECT_EQ(made.bytes()[4095], std::byte{0});
  ASSERT_TRUE(far.send_descriptor(made.descriptor()).ok());
  const SharedMemory mapped = *SharedMemory::map(*near.receive_descriptor(soon()), 4096);
  made.bytes()[17] = std::byte{42};
  EXPECT_EQ(mapped.bytes()[17], std::byte{42});
  EXPECT_NE(mapped.bytes().data(), made.bytes().data());

  ASSERT_TRUE(far.send_descriptor(made.descriptor()).ok());
  EXPECT_EQ(SharedMemory::map(*near.receive_descriptor(soon()), 8192).error().code,
            Code::kDataLoss);
  ASSERT_TRUE(far.send(std::as_bytes(std::span("x", 1)), soon()).ok());
  EXPECT_FALSE(near.receive_descriptor(soon()).ok());
}

TEST(SharedMemory, MoreThanTheHostHasIsAnError) {
  const auto memory = SharedMemory::create(size_t{1} << 55);
  ASSERT_FALSE(memory.ok());
  EXPECT_THAT(memory.error().what, HasSubstr(std::to_string(size_t{1} << 55)));
}

}  // namespace
}  // namespace tandem::io
