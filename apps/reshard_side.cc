#include "apps/reshard_side.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "transfer/libfabric/rail.h"

namespace tandem::apps {
namespace {

using Clock = std::chrono::steady_clock;

struct ReshardRound {
  Reshard onto = Reshard::kEqual;
  bool is_end = false;
};

/// Counted writes that the plans of a round bring to each of the target's ranks.
std::vector<uint64_t> copies_by_target(const std::vector<ReshardMove>& moves) {
  std::vector<uint64_t> copies(ReshardShape::kRanks);
  for (const ReshardMove& move : moves) {
    for (uint32_t rank = 0; move.target_first + rank < copies.size(); ++rank) {
      copies[move.target_first + rank] += move.plan.arrivals(rank).copies;
    }
  }
  return copies;
}

}  // namespace

Result<std::unique_ptr<ReshardSide>> ReshardSide::meet(const Options& options,
                                                       TransferControl& control) {
  std::unique_ptr<ReshardSide> side(new ReshardSide(control));
  TANDEM_TRY(side->open_ranks(options));
  TANDEM_TRY(side->join_ranks());
  return side;
}

Result<void> ReshardSide::open_ranks(const Options& options) {
  for (uint32_t i = 0; i < ReshardShape::kRanks; ++i) {
    Rank& rank = ranks_.emplace_back();
    rank.bytes.assign(ReshardShape::kMoveBytes, std::byte{1});  // what a rank with all heads needs
    std::vector<std::unique_ptr<transfer::Rail>> rails;
    rails.push_back(TANDEM_TRY(transfer::create_libfabric_rail(
        {.network = options.network, .posts_max = options.writes_max})));
    rank.engine = TANDEM_TRY(transfer::TransferEngine::create({.name = fmt::format("rank {}", i)},
                                                              std::move(rails), Clock::now,
                                                              [](std::span<const std::byte>) {}));
    rank.memory = TANDEM_TRY(rank.engine->add_memory({rank.bytes.data(), rank.bytes.size()}));
  }
  return {};
}

Result<void> ReshardSide::join_ranks() {
  std::vector<transfer::EngineAddress> addresses;
  for (Rank& rank : ranks_) {
    TANDEM_TRY(control_.send(encode(rank.engine->address())));
    addresses.push_back(TANDEM_TRY(transfer::decode_address(TANDEM_TRY(control_.receive()))));
  }
  for (Rank& own : ranks_) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const auto writer = TANDEM_TRY(own.engine->add_peer(fmt::format("rank {}", i), addresses[i]));
      own.peers.push_back(writer);
      const auto grant = TANDEM_TRY(own.engine->grant(own.memory, writer));
      TANDEM_TRY(control_.send(encode(grant.descriptor)));
      // What own grants to their i-th rank, their rank of the same number grants to our i-th.
      auto region = TANDEM_TRY(transfer::decode_region(TANDEM_TRY(control_.receive())));
      ranks_[i].regions.push_back(std::move(region));
    }
  }
  for (Rank& own : ranks_) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      own.targets.push_back(
          TANDEM_TRY(own.engine->add_target(own.peers[i], std::move(own.regions[i]))));
    }
  }
  return {};
}

Result<void> ReshardSide::submit(const ReshardMove& move) {
  for (const kv::PlanLink& link : move.plan.links()) {
    Rank& rank = ranks_[link.source_rank];
    const auto id =
        TANDEM_TRY(rank.engine->begin({.arrival = transfer::Arrival{.slot = 0, .epoch = epoch_},
                                       .on_end = [this](const transfer::TransferEnd& end) {
                                         ++ended_;
                                         if (!end.outcome.ok()) failure_ = end.outcome.error();
                                       }}));
    ++begun_;
    std::vector<transfer::WriteRange> slices;
    for (uint64_t pool = 0; pool < ReshardShape::kPools; ++pool) {
      const uint64_t source_base = pool * ReshardShape::kPages * link.source_page_bytes;
      const uint64_t target_base = pool * ReshardShape::kPages * link.target_page_bytes;
      for (uint32_t slice = 0; slice < move.plan.slices_count(); ++slice) {
        move.plan.for_each_copy(
            link, slice, {move.source_pages, move.target_pages}, [&](const kv::PageCopy& copy) {
              slices.push_back(
                  {source_base + copy.source_offset, target_base + copy.target_offset, copy.bytes});
            });
      }
    }
    const transfer::TargetId target = rank.targets[move.target_first + link.target_rank];
    TANDEM_TRY(rank.engine->write(id, {rank.memory, target}, slices));
    TANDEM_TRY(rank.engine->finish(id));
  }
  return {};
}

Result<void> ReshardSide::await_all() {
  while (ended_ < begun_ && !failure_.has_value()) {
    bool has_moved = false;
    for (Rank& rank : ranks_) has_moved |= rank.engine->progress();
    if (!has_moved) std::this_thread::yield();
  }
  return failure_.has_value() ? Result<void>(*failure_) : Result<void>();
}

Result<double> ReshardSide::write(Reshard onto) {
  const std::vector<ReshardMove> moves = TANDEM_TRY(plan_reshard(onto));
  TANDEM_TRY(control_.send_value(ReshardRound{.onto = onto}));
  TANDEM_TRY(control_.receive_value<bool>());  // the other side counts
  ++epoch_;
  const auto start = Clock::now();
  for (const ReshardMove& move : moves) TANDEM_TRY(submit(move));
  TANDEM_TRY(await_all());
  TANDEM_TRY(control_.receive_value<bool>());
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<void> ReshardSide::finish() {
  return control_.send_value(ReshardRound{.is_end = true});
}

Result<void> ReshardSide::serve() {
  while (true) {
    const auto round = TANDEM_TRY(control_.receive_value<ReshardRound>());
    if (round.is_end) return {};
    const std::vector<ReshardMove> moves = TANDEM_TRY(plan_reshard(round.onto));
    const std::vector<uint64_t> copies = copies_by_target(moves);
    ++epoch_;
    for (size_t i = 0; i < copies.size(); ++i) {
      if (copies[i] == 0) continue;
      ++begun_;
      TANDEM_TRY(
          ranks_[i].engine->expect({.slot = 0, .epoch = epoch_}, copies[i], [this] { ++ended_; }));
    }
    TANDEM_TRY(control_.send_value(true));
    TANDEM_TRY(await_all());
    TANDEM_TRY(control_.send_value(true));
  }
}

}  // namespace tandem::apps
