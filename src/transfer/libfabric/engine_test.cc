// Goal: the engine keeps its promises over libfabric as it does over the loopback: pages and
// scattered slices arrive and are counted, several rails are used, and revoking a grant fences its
// writer alone. Method: two engines of this process, moved by turns, over one and two rails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "transfer/libfabric/rail.h"
#include "transfer/transfer_engine.h"

namespace tandem::transfer {
namespace {

constexpr uint32_t kPages = 300;
constexpr uint64_t kPageBytes = 16'384;

struct Layout {
  std::string provider;
  uint32_t rails = 1;
};

std::unique_ptr<TransferEngine> make_engine(const std::string& name, const Layout& layout) {
  std::vector<std::unique_ptr<Rail>> rails;
  for (uint32_t i = 0; i < layout.rails; ++i) {
    LibfabricRailOptions options{.network = {.provider = layout.provider}};
    if (layout.provider == "tcp") options.network.interface = "127.0.0.1";
    rails.push_back(create_libfabric_rail(options).value());
  }
  return TransferEngine::create({.name = name}, std::move(rails), std::chrono::steady_clock::now,
                                [](std::span<const std::byte>) {})
      .value();
}

class LibfabricEngineTest : public testing::TestWithParam<Layout> {
 protected:
  LibfabricEngineTest()
      : source_(make_engine("source", GetParam())), target_(make_engine("target", GetParam())) {
    std::mt19937 random(3);
    std::ranges::generate(from_, [&] { return static_cast<std::byte>(random() | 1); });
    source_memory_ = source_->add_memory({from_.data(), from_.size()}).value();
    target_memory_ = target_->add_memory({to_.data(), to_.size()}).value();
    peer_ = source_->add_peer("target", target_->address()).value();
    writer_ = target_->add_peer("source", source_->address()).value();
    grant_ = target_->grant(target_memory_, writer_).value();
    path_ = {source_memory_, source_->add_target(peer_, grant_.descriptor).value()};
  }

  bool move_until(const std::function<bool()>& is_so) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!is_so()) {
      const bool has_moved = source_->progress() | target_->progress();
      if (!has_moved) std::this_thread::yield();
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }

  /// All pages, backwards; waits for the end and the count.
  TransferEnd write_all(Arrival arrival) {
    bool is_counted = false;
    std::optional<TransferEnd> end;
    EXPECT_TRUE(target_->expect(arrival, kPages, [&] { is_counted = true; }).ok());
    const TransferId transfer =
        source_->begin({.arrival = arrival, .on_end = [&](const TransferEnd& told) { end = told; }})
            .value();
    std::vector<uint32_t> pages(kPages), reversed(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    std::reverse_copy(pages.begin(), pages.end(), reversed.begin());
    EXPECT_TRUE(source_
                    ->write_pages(transfer, path_, {.pages = pages, .stride_bytes = kPageBytes},
                                  {.pages = reversed, .stride_bytes = kPageBytes}, kPageBytes)
                    .ok());
    EXPECT_TRUE(source_->finish(transfer).ok());
    EXPECT_TRUE(move_until([&] { return end.has_value(); }));
    if (end->outcome.ok()) {
      EXPECT_TRUE(move_until([&] { return is_counted; }));
    } else {
      EXPECT_TRUE(target_->cancel_expected(arrival)) << "it was counted";
    }
    return *end;
  }

  std::unique_ptr<TransferEngine> source_, target_;
  std::vector<std::byte> from_ = std::vector<std::byte>(kPages * kPageBytes);
  std::vector<std::byte> to_ = std::vector<std::byte>(from_.size());
  MemoryId source_memory_, target_memory_;
  PeerId peer_, writer_;
  Grant grant_;
  WritePath path_;
};

TEST_P(LibfabricEngineTest, PagesArriveAndAreCounted) {
  for (uint16_t epoch : {1, 2}) {
    std::ranges::fill(to_, std::byte{});
    const TransferEnd end = write_all({.slot = 4, .epoch = epoch});
    EXPECT_TRUE(end.outcome.ok()) << end.outcome.error().what;
    EXPECT_EQ(end.bytes_delivered, from_.size());
    for (uint64_t page = 0; page < kPages; ++page) {
      const auto begin = from_.begin() + static_cast<std::ptrdiff_t>(page * kPageBytes);
      const auto at = to_.begin() + static_cast<std::ptrdiff_t>((kPages - 1 - page) * kPageBytes);
      ASSERT_TRUE(std::equal(begin, begin + kPageBytes, at)) << page;
    }
  }
}

TEST_P(LibfabricEngineTest, ARevokedGrantLetsNothingIn) {
  ASSERT_TRUE(write_all({.slot = 1, .epoch = 1}).outcome.ok());
  std::optional<bool> is_fenced;
  target_->revoke(grant_.id, [&](bool told) { is_fenced = told; });
  ASSERT_TRUE(move_until([&] { return is_fenced.has_value(); }));
  EXPECT_EQ(*is_fenced, GetParam().provider == "tcp");
  std::ranges::fill(to_, std::byte{});
  if (GetParam().provider == "shm") return;  // the write would never end
  const TransferEnd end = write_all({.slot = 1, .epoch = 2});
  ASSERT_FALSE(end.outcome.ok());
  EXPECT_THAT(end.outcome.error().what, testing::HasSubstr("tcp;ofi_rxm"));
  EXPECT_TRUE(std::ranges::all_of(to_, [](std::byte byte) { return byte == std::byte{}; }));
}

INSTANTIATE_TEST_SUITE_P(Layouts, LibfabricEngineTest,
                         testing::Values(Layout{"shm", 1}, Layout{"tcp", 1}, Layout{"tcp", 2}),
                         [](const auto& info) {
                           return info.param.provider + std::to_string(info.param.rails);
                         });

}  // namespace
}  // namespace tandem::transfer
