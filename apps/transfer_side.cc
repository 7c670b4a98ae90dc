#include "apps/transfer_side.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "transfer/libfabric/rail.h"

namespace tandem::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kTargets = 4;  // of a scatter

uint64_t offset_of(uint64_t number, uint64_t bytes) {
  const uint64_t slots = TransferSide::kRegionBytes / std::max<uint64_t>(bytes, 1);
  return number % slots * bytes;
}

}  // namespace

Result<std::unique_ptr<TransferSide>> TransferSide::meet(const Options& options,
                                                         TransferControl& control) {
  std::unique_ptr<TransferSide> side(new TransferSide(options, control));
  side->bare_ = TANDEM_TRY(bench::BareFabric::meet(
      {.network = options.network, .region_bytes = kRegionBytes, .writes_max = options.writes_max},
      control.socket()));
  TANDEM_TRY(side->open_engine());
  return side;
}

Result<void> TransferSide::open_engine() {
  region_.assign(kRegionBytes, std::byte{1});
  std::vector<std::unique_ptr<transfer::Rail>> rails;
  rails.push_back(TANDEM_TRY(transfer::create_libfabric_rail(
      {.network = options_.network, .posts_max = options_.writes_max})));
  engine_ = TANDEM_TRY(transfer::TransferEngine::create(
      {.name = "bench"}, std::move(rails), Clock::now, [](std::span<const std::byte>) {}));
  memory_ = TANDEM_TRY(engine_->add_memory({region_.data(), region_.size()}));
  TANDEM_TRY(control_.send(encode(engine_->address())));
  const auto address = TANDEM_TRY(transfer::decode_address(TANDEM_TRY(control_.receive())));
  const transfer::PeerId peer = TANDEM_TRY(engine_->add_peer("the other side", address));
  for (uint32_t i = 0; i < kTargets; ++i) {
    const auto grant = TANDEM_TRY(engine_->grant(memory_, peer));
    TANDEM_TRY(control_.send(encode(grant.descriptor)));
    auto region = TANDEM_TRY(transfer::decode_region(TANDEM_TRY(control_.receive())));
    targets_.push_back(TANDEM_TRY(engine_->add_target(peer, std::move(region))));
  }
  return {};
}

Result<void> TransferSide::begin(const TransferRound& round) {
  TANDEM_CHECK(round.bytes <= kRegionBytes);
  TANDEM_TRY(control_.send_value(round));
  if (round.kind != TransferKind::kBare) ++epoch_;
  TANDEM_TRY(control_.receive_value<bool>());  // the other side counts
  return {};
}

Result<void> TransferSide::await(const bool& is_so) {
  while (!is_so && !failure_.has_value()) {
    if (!engine_->progress()) std::this_thread::yield();
  }
  return failure_.has_value() ? Result<void>(*failure_) : Result<void>();
}

Result<void> TransferSide::await_counted() {
  TANDEM_TRY(control_.receive_value<bool>());
  return {};
}

Result<transfer::TransferId> TransferSide::begin_transfer(bool& has_ended) {
  return engine_->begin({.arrival = transfer::Arrival{.slot = 0, .epoch = epoch_},
                         .on_end = [this, &has_ended](const transfer::TransferEnd& end) {
                           has_ended = true;
                           if (!end.outcome.ok()) failure_ = end.outcome.error();
                         }});
}

Result<void> TransferSide::write_slices(const TransferRound& round) {
  bool has_ended = false;
  const auto id = TANDEM_TRY(begin_transfer(has_ended));
  const uint64_t slots = kRegionBytes / round.bytes;
  if (round.kind == TransferKind::kPaged) {
    std::vector<uint32_t> pages(round.slices);
    for (uint64_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<uint32_t>(i % slots);
    const transfer::PageList list{.pages = pages, .stride_bytes = round.bytes};
    TANDEM_TRY(engine_->write_pages(id, {memory_, targets_[0]}, list, list, round.bytes));
  } else {
    std::vector<transfer::ScatterRange> slices(round.slices);
    for (uint64_t i = 0; i < slices.size(); ++i) {
      const uint64_t offset = offset_of(i, round.bytes);
      slices[i] = {targets_[i % kTargets], {offset, offset, round.bytes}};
    }
    TANDEM_TRY(engine_->scatter(id, memory_, slices));
  }
  TANDEM_TRY(engine_->finish(id));
  return await(has_ended);
}

Result<void> TransferSide::write_one(uint64_t number, uint64_t bytes, bool& has_ended) {
  const uint64_t offset = offset_of(number, bytes);
  const transfer::WriteRange range{offset, offset, bytes};
  const auto id = TANDEM_TRY(begin_transfer(has_ended));
  TANDEM_TRY(engine_->write(id, {memory_, targets_[0]}, std::span(&range, 1)));
  return engine_->finish(id);
}

Result<void> TransferSide::write_transfers(const TransferRound& round) {
  std::deque<bool> under_way;
  for (uint64_t i = 0; i < round.slices || !under_way.empty();) {
    if (i < round.slices && under_way.size() < options_.writes_max) {
      TANDEM_TRY(write_one(i++, round.bytes, under_way.emplace_back(false)));
      continue;
    }
    TANDEM_TRY(await(under_way.front()));
    under_way.pop_front();
  }
  return {};
}

Result<double> TransferSide::write(const TransferRound& round) {
  TANDEM_TRY(begin(round));
  if (round.kind == TransferKind::kBare) return bare_->write({round.bytes, round.slices});
  const auto start = Clock::now();
  if (round.kind == TransferKind::kSingle) {
    TANDEM_TRY(write_transfers(round));
  } else {
    TANDEM_TRY(write_slices(round));
  }
  TANDEM_TRY(await_counted());
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<std::vector<double>> TransferSide::write_singly(const TransferRound& round) {
  TANDEM_TRY(begin(round));
  if (round.kind == TransferKind::kBare) return bare_->write_singly({round.bytes, round.slices});
  std::vector<double> latencies_us;
  for (uint64_t i = 0; i < round.slices; ++i) {
    const auto start = Clock::now();
    bool has_ended = false;
    TANDEM_TRY(write_one(i, round.bytes, has_ended));
    TANDEM_TRY(await(has_ended));
    latencies_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  TANDEM_TRY(await_counted());
  return latencies_us;
}

Result<void> TransferSide::finish() {
  return control_.send_value(TransferRound{});
}

Result<void> TransferSide::serve() {
  while (true) {
    const auto round = TANDEM_TRY(control_.receive_value<TransferRound>());
    if (round.slices == 0) return {};
    bool is_counted = false;
    if (round.kind == TransferKind::kBare) {
      TANDEM_TRY(control_.send_value(true));
      TANDEM_TRY(bare_->count(round.slices));
      continue;
    }
    ++epoch_;
    TANDEM_TRY(
        engine_->expect({.slot = 0, .epoch = epoch_}, round.slices, [&] { is_counted = true; }));
    TANDEM_TRY(control_.send_value(true));
    TANDEM_TRY(await(is_counted));
    TANDEM_TRY(control_.send_value(true));
  }
}

}  // namespace tandem::apps
