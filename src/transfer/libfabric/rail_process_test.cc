// Goal: what a rail promises between processes: bytes and counts are right, a death is an error
// that names the peer and hangs nobody, and nothing stays in /dev/shm. Method: the other side is
// forked before it or this program has a thread, and is killed where the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <random>

#include "transfer/libfabric/testing/peer_process.h"
#include "transfer/libfabric/testing/rail_end.h"

namespace tandem::transfer {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

std::byte byte_at(uint64_t offset) {
  return static_cast<std::byte>(offset * 2654435761u >> 13 | 1);
}

bool has_files_of(int process_id) {
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().starts_with(std::to_string(process_id) + ":")) return true;
  }
  return false;
}

bool has_ended(io::Socket& socket) {
  std::byte any;
  const auto received = socket.receive_some(std::span(&any, 1));
  return !received.ok();
}

class RailProcessTest : public testing::TestWithParam<std::string> {
 protected:
  LibfabricRailOptions impatient() const { return {.connect_max = milliseconds(300)}; }
};

TEST_P(RailProcessTest, RandomWritesArriveWithTheirImmediates) {
  constexpr size_t kBytes = 8 << 20;
  constexpr uint32_t kWrites = 600;
  PeerProcess writer([](io::Socket& socket) {
    RailEnd end(GetParam());
    std::vector<std::byte> memory(kBytes);
    for (uint64_t i = 0; i < kBytes; ++i) memory[i] = byte_at(i);
    const RailPeerId peer = end.rail->add_peer(take(socket)).value();
    RailWrite write{
        .peer = peer, .source = end.source(memory), .target = take_value<RemoteKey>(socket)};
    // Pieces of random sizes that cover everything once, in no order.
    std::mt19937 random(5);
    std::vector<uint64_t> borders = {0, kBytes};
    while (borders.size() < kWrites + 1) borders.push_back(random() % kBytes);
    std::ranges::sort(borders);
    std::vector<uint32_t> order(kWrites);
    for (uint32_t i = 0; i < kWrites; ++i) order[i] = i;
    std::ranges::shuffle(order, random);
    for (const uint32_t i : order) {
      write.source_offset = write.target_offset = borders[i];
      write.bytes = borders[i + 1] - borders[i];
      write.immediate = i % 3;
      write.token = i;
      ASSERT_TRUE(
          poll_until({&end}, [&] { return end.rail->post_write(write) == Post::kAccepted; }));
    }
    ASSERT_TRUE(poll_until({&end}, [&] { return end.ended.size() == kWrites; }));
    for (const auto& [token, ended] : end.ended) {
      ASSERT_EQ(ended.outcome, RailOutcome::kDelivered) << ended.error;
    }
    // Whoever says so leaves only when the target has counted: shm tells before that of nothing.
    take(socket);
  });
  RailEnd end(GetParam());
  std::vector<std::byte> memory(kBytes);
  give(writer.socket(), end.rail->address());
  give_value(writer.socket(), end.target(memory).remote);
  const std::map<uint32_t, int> expected = {{0, kWrites / 3}, {1, kWrites / 3}, {2, kWrites / 3}};
  ASSERT_TRUE(poll_until({&end}, [&] { return end.immediates == expected; }));
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kBytes; ++i) wrong += memory[i] == byte_at(i) ? 0 : 1;
  EXPECT_EQ(wrong, 0u);
  give(writer.socket(), {});
  const int process_id = writer.process_id();
  EXPECT_EQ(writer.end(0), 0);
  EXPECT_FALSE(has_files_of(process_id));
}

TEST_P(RailProcessTest, TheDeathOfATargetIsNamed) {
  PeerProcess target([](io::Socket& socket) {
    RailEnd end(GetParam());
    std::vector<std::byte> memory(16 << 20);
    give(socket, end.rail->address());
    give_value(socket, end.target(memory).remote);
    ASSERT_TRUE(poll_until({&end}, [&] { return end.immediates[1] == 1; }));
    // Outside of libfabric from here on, and asleep: what is written now waits.
    give(socket, {});
    take(socket);
  });
  RailEnd end(GetParam(), impatient());
  std::vector<std::byte> memory(16 << 20, std::byte{1});
  const auto address = take(target.socket());
  RailWrite write{.peer = end.rail->add_peer(address).value(),
                  .source = end.source(memory),
                  .target = take_value<RemoteKey>(target.socket()),
                  .bytes = 1,
                  .immediate = 1};
  ASSERT_EQ(end.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&end}, [&] { return end.ended.size() == 1; }));
  take(target.socket());
  write.bytes = memory.size();
  write.token = 1;
  ASSERT_EQ(end.rail->post_write(write), Post::kAccepted);
  poll_for({&end}, milliseconds(20));
  EXPECT_EQ(end.ended.size(), 1u);
  target.signal(SIGKILL);
  ASSERT_TRUE(poll_until({&end}, [&] { return end.ended.size() == 2; }));
  EXPECT_EQ(end.ended[1].outcome, RailOutcome::kUnknown);
  EXPECT_THAT(end.ended[1].error, AllOf(HasSubstr("rail " + end.rail->name() + ": write to fi_s"),
                                        HasSubstr("failed")));
  // The path stays lost, and its memory is let go.
  write.token = 2;
  ASSERT_EQ(end.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&end}, [&] { return end.ended.size() == 3; }));
  EXPECT_EQ(end.ended[2].outcome, RailOutcome::kNotSent);
  end.rail->close_peer(write.peer);
  ASSERT_TRUE(poll_until({&end}, [&] { return end.closed_peers.size() == 1; }));
  // Nobody is at the address any more.
  write.peer = end.rail->add_peer(address).value();
  write.token = 3;
  ASSERT_EQ(end.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&end}, [&] { return end.ended.size() == 4; }));
  EXPECT_EQ(end.ended[3].outcome, RailOutcome::kNotSent);
  EXPECT_THAT(end.ended[3].error, HasSubstr(GetParam() == "shm" ? "process" : "connect to fi_s"));
  // Whoever opens a rail next clears up behind the dead.
  const int process_id = target.process_id();
  target.end(0);
  const RailEnd next(GetParam());
  EXPECT_FALSE(has_files_of(process_id));
}

TEST_P(RailProcessTest, WritersMayDieWhileTheyWrite) {
  constexpr size_t kBytes = 16 << 20;
  const auto write_until_killed = [](io::Socket& socket) {
    const auto address = take(socket);
    RailEnd end(GetParam());
    std::vector<std::byte> from(kBytes, std::byte{1});
    RailWrite write{.peer = end.rail->add_peer(address).value(),
                    .source = end.source(from),
                    .target = take_value<RemoteKey>(socket),
                    .bytes = from.size(),
                    .immediate = 1};
    for (; write.token < 3; ++write.token) {
      ASSERT_TRUE(
          poll_until({&end}, [&] { return end.rail->post_write(write) == Post::kAccepted; }));
    }
    // Over shm a writer may die only where it holds no lock (rail.h): outside of libfabric.
    ASSERT_TRUE(poll_until({&end}, [&] { return !end.ended.empty() || GetParam() == "tcp"; }));
    if (GetParam() == "tcp") poll_for({&end}, milliseconds(60'000));
    give(socket, {});
    take(socket);
  };
  const auto tell_once = [](io::Socket& socket) {
    const auto address = take(socket);
    RailEnd end(GetParam());
    ASSERT_EQ(end.rail->post_write({.peer = end.rail->add_peer(address).value(),
                                    .target = take_value<RemoteKey>(socket),
                                    .immediate = 2}),
              Post::kAccepted);
    ASSERT_TRUE(poll_until({&end}, [&] { return has_ended(socket); }));
  };
  std::deque<PeerProcess> writers;
  for (int i = 0; i < 4; ++i) writers.emplace_back(write_until_killed);
  PeerProcess last(tell_once);
  RailEnd end(GetParam());
  std::vector<std::byte> memory(kBytes);
  const Registration registration = end.target(memory);
  for (PeerProcess& writer : writers) {
    give(writer.socket(), end.rail->address());
    give_value(writer.socket(), registration.remote);
    ASSERT_TRUE(poll_until({&end}, [&] { return memory[0] == std::byte{1}; }));
    if (GetParam() == "shm") take(writer.socket());
    writer.end(SIGKILL);
    poll_for({&end}, milliseconds(20));
    std::ranges::fill(memory, std::byte{});
  }
  // It goes on with the living.
  give(last.socket(), end.rail->address());
  give_value(last.socket(), registration.remote);
  EXPECT_TRUE(poll_until({&end}, [&] { return end.immediates[2] == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Providers, RailProcessTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::transfer
