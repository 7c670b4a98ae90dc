// Goal: a rail over shm and over tcp keeps every promise of rail.h: bytes and immediates are right
// and exact, everything that was accepted ends once, and a fence holds. Method: two rails in this
// process write to each other; what must not happen is given time to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "transfer/libfabric/prepare.h"
#include "transfer/libfabric/testing/rail_end.h"

namespace tandem::transfer {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

/// libfabric wants this before its first call; gtest's own main() knows nothing of it.
class PrepareLibfabric : public testing::Environment {
 public:
  void SetUp() override { prepare_libfabric(); }
};
const testing::Environment* const kPrepared =
    testing::AddGlobalTestEnvironment(new PrepareLibfabric);

constexpr std::byte kPoison{0xA5};

std::vector<std::byte> random_bytes(size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random() | 1); });
  return bytes;
}

class RailTest : public testing::TestWithParam<std::string> {
 protected:
  std::mt19937 random_{20};
};

TEST_P(RailTest, RandomWritesArriveWithTheirImmediates) {
  RailEnd source(GetParam()), target(GetParam());
  constexpr size_t kSlot = 300'000;
  constexpr size_t kWrites = 96;
  std::vector<std::byte> from = random_bytes(kWrites * kSlot, random_);
  std::vector<std::byte> to(from.size(), kPoison);
  std::vector<std::byte> expected = to;
  const RailPeerId peer = source.add(target);
  const RailRegionId region = source.source(from);
  const Registration registration = target.target(to);
  std::map<uint32_t, int> immediates;
  for (uint64_t i = 0; i < kWrites; ++i) {
    // Small, around what providers treat apart (64, 4096), large, and none at all.
    const size_t sizes[] = {0, 1, 64, 1000, 4096, 4097, 32768, 1 + random_() % kSlot};
    RailWrite write{.peer = peer,
                    .source = region,
                    .source_offset = i * kSlot,
                    .target = registration.remote,
                    .target_offset = (kWrites - 1 - i) * kSlot,
                    .bytes = sizes[i % std::size(sizes)],
                    .token = i};
    if (i % 3 != 0) write.immediate = static_cast<uint32_t>(random_() % 4 + 0xFFFF'FFF0);
    if (write.immediate) ++immediates[*write.immediate];
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(write.source_offset), write.bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(write.target_offset));
    ASSERT_TRUE(poll_until({&source, &target},
                           [&] { return source.rail->post_write(write) == Post::kAccepted; }));
  }
  ASSERT_TRUE(poll_until({&source, &target}, [&] {
    return source.ended.size() == kWrites && target.immediates == immediates;
  })) << source.ended.size();
  for (const auto& [token, ended] : source.ended) {
    EXPECT_EQ(ended.outcome, RailOutcome::kDelivered) << ended.error;
  }
  EXPECT_EQ(to, expected);
  poll_for({&source, &target}, milliseconds(50));
  EXPECT_EQ(target.immediates, immediates);
}

TEST_P(RailTest, DeliveredMeansVisibleAlsoWhenTheTargetIsLate) {
  RailEnd source(GetParam()), target(GetParam());
  std::vector<std::byte> from = random_bytes(100'000, random_);
  std::vector<std::byte> to(from.size(), kPoison);
  const RailPeerId peer = source.add(target);
  RailWrite write{.peer = peer,
                  .source = source.source(from),
                  .target = target.target(to).remote,
                  .bytes = from.size(),
                  .immediate = 7};
  // The first connects; the second finds buffers that could take all of it.
  ASSERT_EQ(source.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return source.ended.size() == 1; }));
  EXPECT_EQ(to, from);
  std::ranges::fill(to, kPoison);
  write.token = 1;
  ASSERT_EQ(source.rail->post_write(write), Post::kAccepted);
  poll_for({&source}, milliseconds(100));
  EXPECT_EQ(source.ended.size(), 1u) << "nobody has seen it";
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return source.ended.size() == 2; }));
  EXPECT_EQ(to, from);
}

TEST_P(RailTest, MessagesBothWaysUpToTheLimit) {
  RailEnd ends[2] = {RailEnd(GetParam()), RailEnd(GetParam())};
  const RailPeerId peers[2] = {ends[0].add(ends[1]), ends[1].add(ends[0])};
  const uint32_t limit = ends[0].rail->limits().message_bytes_max;
  ASSERT_GE(limit, kMessageBytesMin);
  // More than there are buffers, so that each is used again.
  constexpr size_t kMessages = 400;
  std::vector<std::vector<std::byte>> sent[2];
  for (uint64_t i = 0; i < kMessages; ++i) {
    const uint32_t sizes[] = {1, 100, limit - 1, limit};
    for (int side : {0, 1}) {
      sent[side].push_back(random_bytes(sizes[i % std::size(sizes)], random_));
      ASSERT_TRUE(poll_until({&ends[0], &ends[1]}, [&] {
        return ends[side].rail->post_message(peers[side], sent[side].back(), i) == Post::kAccepted;
      }));
    }
  }
  ASSERT_TRUE(poll_until({&ends[0], &ends[1]}, [&] {
    return ends[0].messages.size() == kMessages && ends[1].messages.size() == kMessages &&
           ends[0].ended.size() == kMessages && ends[1].ended.size() == kMessages;
  }));
  for (int side : {0, 1}) {
    EXPECT_THAT(ends[1 - side].messages, testing::UnorderedElementsAreArray(sent[side]));
  }
}

TEST_P(RailTest, FullIsNoFailureAndEverythingAcceptedEndsOnce) {
  RailEnd source(GetParam(), {.posts_max = 16}), target(GetParam());
  std::vector<std::byte> from = random_bytes(8192, random_);
  std::vector<std::byte> to(from.size());
  RailWrite write{.peer = source.add(target),
                  .source = source.source(from),
                  .target = target.target(to).remote,
                  .bytes = from.size(),
                  .immediate = 3};
  // The target does not move, so the source fills up.
  while (source.rail->post_write(write) == Post::kAccepted) {
    ++write.token;
    ASSERT_LE(write.token, 16u);
    source.poll();
  }
  const uint64_t accepted = write.token;
  EXPECT_GT(accepted, 0u);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return source.ended.size() == accepted; }));
  EXPECT_EQ(target.immediates[3], static_cast<int>(accepted));
  EXPECT_EQ(source.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return source.ended.size() > accepted; }));
}

TEST_P(RailTest, AClosedKeyLetsNothingIn) {
  RailEnd source(GetParam()), target(GetParam());
  std::vector<std::byte> from = random_bytes(50'000, random_);
  std::vector<std::byte> to(from.size(), kPoison);
  const RailPeerId writer = target.add(source);
  RailWrite write{.peer = source.add(target),
                  .source = source.source(from),
                  .bytes = from.size(),
                  .immediate = 9};
  const Registration registration = target.target(to);
  write.target = registration.remote;
  target.rail->set_writer(registration.id, writer);
  ASSERT_EQ(source.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return target.immediates[9] == 1; }));
  target.rail->close_region(registration.id);
  ASSERT_TRUE(poll_until({&target}, [&] { return !target.closed_regions.empty(); }));
  EXPECT_THAT(target.closed_regions, ElementsAre(registration.id));
  std::ranges::fill(to, kPoison);
  // Also through a new path, for the old one may be cut.
  write.peer = source.add(target);
  write.token = 1;
  ASSERT_EQ(source.rail->post_write(write), Post::kAccepted);
  poll_for({&source, &target}, milliseconds(200));
  EXPECT_EQ(to, std::vector(to.size(), kPoison));
  EXPECT_EQ(target.immediates[9], 1);
  EXPECT_TRUE(!source.ended.contains(1) || source.ended[1].outcome != RailOutcome::kDelivered);
}

TEST_P(RailTest, AClosedPeerEndsItsPosts) {
  RailEnd source(GetParam()), target(GetParam());
  std::vector<std::byte> from = random_bytes(16 << 20, random_);
  std::vector<std::byte> to(from.size(), kPoison);
  RailWrite write{.peer = source.add(target),
                  .source = source.source(from),
                  .target = target.target(to).remote,
                  .bytes = from.size()};
  // The first makes the connection; the second is stuck, as the target does not move.
  ASSERT_EQ(source.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return source.ended.size() == 1; }));
  write.token = 1;
  ASSERT_EQ(source.rail->post_write(write), Post::kAccepted);
  poll_for({&source}, milliseconds(20));
  source.rail->close_peer(write.peer);
  ASSERT_TRUE(poll_until({&source}, [&] { return source.ended.size() == 2; }));
  EXPECT_EQ(source.ended[1].outcome, RailOutcome::kUnknown);
  if (GetParam() == "shm") {  // the target may still read from us
    poll_for({&source}, milliseconds(100));
    EXPECT_TRUE(source.closed_peers.empty());
  } else {
    ASSERT_TRUE(poll_until({&source}, [&] { return !source.closed_peers.empty(); }));
  }
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return !source.closed_peers.empty(); }));
  EXPECT_THAT(source.closed_peers, ElementsAre(write.peer));
  // Its memory is ours again: what is put there now does not travel.
  std::ranges::fill(from, std::byte{});
  poll_for({&source, &target}, milliseconds(100));
  EXPECT_EQ(std::ranges::count(to, std::byte{}), 0);
  // A new path works.
  write.peer = source.add(target);
  write.token = 2;
  ASSERT_EQ(source.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return source.ended.size() == 3; }));
  EXPECT_EQ(source.ended[2].outcome, RailOutcome::kDelivered) << source.ended[2].error;
}

TEST_P(RailTest, OffsetsBeyondFourGigabytes) {
  constexpr size_t kBytes = size_t{6} << 30;
  constexpr size_t kOffset = (size_t{5} << 30) + 12345;
  RailEnd source(GetParam()), target(GetParam());
  // Only touched pages exist.
  const auto map = [] {
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  };
  std::byte* from = map();
  std::byte* to = map();
  if (from == nullptr || to == nullptr) GTEST_SKIP() << "no address space";
  std::fill_n(from + kOffset, 10'000, kPoison);
  ASSERT_EQ(source.rail->post_write({.peer = source.add(target),
                                     .source = source.source({from, kBytes}),
                                     .source_offset = kOffset,
                                     .target = target.target({to, kBytes}).remote,
                                     .target_offset = kOffset + 1,
                                     .bytes = 10'000,
                                     .immediate = 1}),
            Post::kAccepted);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return target.immediates[1] == 1; }));
  EXPECT_EQ(to[kOffset], std::byte{});
  EXPECT_EQ(std::count(to + kOffset + 1, to + kOffset + 10'001, kPoison), 10'000);
  EXPECT_EQ(to[kOffset + 10'001], std::byte{});
  EXPECT_EQ(to[(kOffset + 1) & 0xFFFF'FFFF], std::byte{});
  ::munmap(from, kBytes);
  ::munmap(to, kBytes);
}

TEST_P(RailTest, RefusesWhatIsNoAddress) {
  RailEnd end(GetParam());
  const std::vector<std::byte> own = end.rail->address();
  EXPECT_LE(own.size(), 256u);
  for (const size_t bytes : {size_t{0}, size_t{3}, own.size() - 1}) {
    const auto added = end.rail->add_peer(std::span(own).first(bytes));
    ASSERT_FALSE(added.ok()) << bytes;
    EXPECT_EQ(added.error().code, Code::kInvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(Providers, RailTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST(TcpRail, AFenceStopsAWriteThatHasBegun) {
  RailEnd source("tcp"), target("tcp");
  ASSERT_TRUE(target.rail->can_fence());
  std::vector<std::byte> from(16 << 20, std::byte{1});
  std::vector<std::byte> to(from.size(), kPoison);
  const Registration registration = target.target(to);
  target.rail->set_writer(registration.id, target.add(source));
  ASSERT_EQ(source.rail->post_write({.peer = source.add(target),
                                     .source = source.source(from),
                                     .target = registration.remote,
                                     .bytes = from.size(),
                                     .immediate = 5}),
            Post::kAccepted);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return to.front() != kPoison; }));
  ASSERT_EQ(to.back(), kPoison) << "it was over before it could be stopped";
  target.rail->close_region(registration.id);
  ASSERT_TRUE(poll_until({&target}, [&] { return !target.closed_regions.empty(); }));
  const std::vector<std::byte> then = to;
  poll_for({&source, &target}, milliseconds(200));
  EXPECT_TRUE(to == then) << "bytes came after the fence";
  EXPECT_TRUE(target.immediates.empty());
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return !source.ended.empty(); }));
  EXPECT_EQ(source.ended[0].outcome, RailOutcome::kUnknown);
  EXPECT_THAT(source.ended[0].error, HasSubstr("write to fi_sockaddr_in://127.0.0.1:"));
}

TEST(TcpRail, AFenceForOneWriterLeavesTheOthersAlone) {
  RailEnd fenced("tcp"), other("tcp"), target("tcp");
  std::vector<std::byte> from(1000, std::byte{1});
  std::vector<std::byte> to(from.size(), kPoison);
  const Registration registration = target.target(to);
  target.rail->set_writer(registration.id, target.add(fenced));
  target.add(other);
  RailWrite write{.peer = other.add(target),
                  .source = other.source(from),
                  .target = target.target(to).remote,
                  .bytes = from.size(),
                  .immediate = 5};
  ASSERT_EQ(other.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&other, &target}, [&] { return !other.ended.empty(); }));
  target.rail->close_region(registration.id);
  ASSERT_TRUE(poll_until({&target}, [&] { return !target.closed_regions.empty(); }));
  write.token = 1;
  ASSERT_EQ(other.rail->post_write(write), Post::kAccepted);
  ASSERT_TRUE(poll_until({&other, &target}, [&] { return other.ended.size() == 2; }));
  EXPECT_EQ(other.ended[1].outcome, RailOutcome::kDelivered) << other.ended[1].error;
}

TEST(TcpRail, SleepsUntilSomethingComes) {
  RailEnd source("tcp"), target("tcp");
  const RailPeerId peer = source.add(target);
  const std::byte message[] = {kPoison};
  ASSERT_EQ(source.rail->post_message(peer, message, 0), Post::kAccepted);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return target.messages.size() == 1; }));
  pollfd waiting{.fd = target.rail->wait_descriptor(), .events = POLLIN, .revents = 0};
  ASSERT_GE(waiting.fd, 0);
  ASSERT_TRUE(poll_until({&source, &target}, [&] { return target.rail->may_sleep(); }));
  EXPECT_EQ(::poll(&waiting, 1, 50), 0) << "woken by nothing";
  ASSERT_EQ(source.rail->post_message(peer, message, 1), Post::kAccepted);
  ASSERT_TRUE(poll_until({&source}, [&] { return source.ended.size() == 2; }));
  EXPECT_EQ(::poll(&waiting, 1, 30'000), 1);
  ASSERT_TRUE(poll_until({&target}, [&] { return target.messages.size() == 2; }));
}

}  // namespace
}  // namespace tandem::transfer
