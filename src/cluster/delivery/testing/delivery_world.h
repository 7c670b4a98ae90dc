#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/delivery/kv_receiver.h"
#include "cluster/delivery/kv_sender.h"
#include "cluster/delivery/testing/plain_kv_rank.h"
#include "io/executor.h"

namespace tandem::cluster::testing {

inline constexpr auto kPoison = std::byte{0xe5};

/// Where a world's engines live and how its time passes.
struct WorldPlace {
  io::Executor& executor;
  /// Lets things happen until `is_so`; false when they take too long.
  std::function<bool(const std::function<bool()>& is_so)> run_until;
  std::function<std::vector<std::unique_ptr<transfer::Rail>>(const std::string& name)> make_rails;
  DataRankOptions options;
};

/// A prefill worker that writes to a decode group, and all that both are told.
struct DeliveryWorld final : KvSenderEvents, KvReceiverEvents {
  struct Handoff {
    handoff::LinkedKey id;
    std::shared_ptr<const kv::TransferPlan> plan;
    std::vector<PageId> source_pages, target_pages;
    uint64_t sidecar_first = 0;
    uint64_t submitted = 0;
    uint64_t delivered = 0;
    uint64_t failed = 0;
    std::optional<Error> error;
    std::set<uint32_t> armed, arrived;  // target ranks
    std::map<uint32_t, Result<void>> verdicts;

    bool is_over() const { return delivered + failed == submitted; }
    /// All ranks' are here, and all ok.
    bool is_proved(uint32_t ranks) const {
      return verdicts.size() == ranks &&
             std::ranges::all_of(verdicts, [](const auto& each) { return each.second.ok(); });
    }
  };

  DeliveryWorld(WorldPlace given_place, kv::KvLayout source, kv::KvLayout target, uint64_t seed)
      : place(std::move(given_place)), random(seed) {
    sender = std::make_unique<KvSender>(source, open_ranks("source", source, source_memory),
                                        place.executor, *this);
    receiver = std::make_unique<KvReceiver>(target, open_ranks("target", target, target_memory),
                                            place.executor, *this);
    for (const auto& rank : source_memory) {
      for (std::byte& byte : rank->memory()) byte = static_cast<std::byte>(random());
    }
    for (const auto& rank : target_memory) std::ranges::fill(rank->memory(), kPoison);
  }

  std::vector<DataRank> open_ranks(const std::string& side, const kv::KvLayout& layout,
                                   std::vector<std::unique_ptr<PlainKvRank>>& memory) {
    std::vector<DataRank> ranks;
    for (uint32_t i = 0; i < layout.ranks_count(); ++i) {
      memory.push_back(std::make_unique<PlainKvRank>(layout, i));
      DataRankOptions options = place.options;
      options.engine.name = side + std::to_string(i);
      ranks.push_back(
          open_data_rank(*memory[i], place.make_rails(options.engine.name), options).value());
    }
    return ranks;
  }

  uint32_t target_ranks() const { return receiver->layout().ranks_count(); }
  uint32_t number(uint32_t end) { return static_cast<uint32_t>(random() % end); }

  /// Opens a link on both sides.
  void connect(handoff::LinkId link) {
    int answers = 0;
    receiver->open_link(link, "prefill", sender->source(), [&, link](Result<LinkOffer> offer) {
      ASSERT_TRUE(offer.ok()) << offer.error().what;
      EXPECT_EQ(offer->link, link);
      ++answers;
      sender->open_link(*std::move(offer), [&](const Result<void>& result) {
        ASSERT_TRUE(result.ok()) << result.error().what;
        ++answers;
      });
    });
    ASSERT_TRUE(place.run_until([&] { return answers == 2; }));
  }

  std::vector<PageId> draw_pages(const kv::KvLayout& layout, uint32_t count) {
    std::vector<PageId> pages(layout.pages_total);
    for (uint32_t i = 0; i < layout.pages_total; ++i) pages[i] = PageId{i};
    std::ranges::shuffle(pages, random);
    pages.resize(count);
    return pages;
  }
  /// Begins on the sender; nothing is armed yet.
  Handoff& begin(handoff::LinkedKey id, kv::TokenRange tokens) {
    const kv::KvLayout& from = sender->source().layout;
    auto plan = std::make_shared<const kv::TransferPlan>(
        kv::TransferPlan::create(from, receiver->layout(), {.tokens = tokens, .spread = number(9)})
            .value());
    Handoff& made = handoffs[id];
    made = {.id = id,
            .plan = plan,
            .source_pages = draw_pages(from, plan->source_pages().end),
            .target_pages = draw_pages(receiver->layout(), plan->slices_count()),
            .sidecar_first = number(100)};
    const auto begun = sender->begin({id, plan, made.target_pages, made.sidecar_first});
    EXPECT_TRUE(begun.ok()) << begun.error().what;
    sender->set_pages(id, made.source_pages);
    return made;
  }
  void arm(Handoff& made) {
    for (uint32_t rank = 0; rank < target_ranks(); ++rank) {
      const auto writes = static_cast<uint32_t>(made.plan->arrivals(rank).total());
      receiver->arm(handoff::immediate_of(made.id.key), rank, writes,
                    [&made, rank](const Result<void>& result) {
                      EXPECT_TRUE(result.ok()) << result.error().what;
                      made.armed.insert(rank);
                    });
    }
    ASSERT_TRUE(place.run_until([&] { return made.armed.size() == target_ranks(); }));
  }
  void submit(Handoff& made, const handoff::PrefillerPorts::Slices& slices) {
    const auto submitted = sender->submit(made.id, slices);
    EXPECT_FALSE(submitted.error) << submitted.error->what;
    made.submitted += submitted.writes;
  }
  /// As an engine computes: chunk by chunk, ranks and layers at a pace of their own, up to a token.
  void submit_up_to(Handoff& made, uint32_t tokens_end) {
    const uint32_t layers = made.plan->layers();
    const auto ranks = static_cast<uint32_t>(source_memory.size());
    std::vector<uint32_t> sent(ranks * layers, made.plan->tokens().first);
    for (size_t left = sent.size(); left > 0;) {
      const uint32_t which = number(ranks * layers);
      if (sent[which] == tokens_end) continue;
      const uint32_t end = sent[which] + 1 + number(tokens_end - sent[which]);
      submit(made, {which / layers, which % layers, sent[which], end});
      sent[which] = end;
      left -= end == tokens_end;
      if (number(8) == 0) place.run_until([] { return true; });
    }
  }
  void submit_all(Handoff& made) {
    submit_up_to(made, made.plan->tokens().end);
    uint64_t planned = 0;
    for (uint32_t rank = 0; rank < target_ranks(); ++rank) {
      planned += made.plan->arrivals(rank).total();
    }
    EXPECT_EQ(made.submitted, planned);
  }
  void verify(Handoff& made) {
    receiver->verify({made.id.key, made.plan, made.target_pages, made.sidecar_first});
    ASSERT_TRUE(place.run_until([&] { return made.verdicts.size() == target_ranks(); }));
  }
  void drop(const Handoff& made) {
    for (uint32_t rank = 0; rank < target_ranks(); ++rank) {
      receiver->drop(handoff::immediate_of(made.id.key), rank);
    }
  }
  bool has_arrived(const Handoff& made) const { return made.arrived.size() == target_ranks(); }

  using Memory = std::vector<std::vector<std::byte>>;
  Memory target_bytes() const {
    Memory all;
    for (const auto& rank : target_memory) {
      all.emplace_back(rank->memory().begin(), rank->memory().end());
    }
    return all;
  }
  /// What the target must hold when this hand-off is delivered onto what it held `before`.
  Memory expected_bytes(const Handoff& made, Memory before) const {
    const kv::KvLayout& from = sender->source().layout;
    const kv::TransferPlan::Pages pages{
        .source = std::span(made.source_pages).subspan(made.plan->source_pages().first),
        .target = made.target_pages};
    for (const kv::PlanLink& link : made.plan->links()) {
      for (uint32_t pool = 0; pool < 2 * from.layers; ++pool) {
        const std::byte* source = source_memory[link.source_rank]->memory().data() +
                                  pool * from.pool_bytes(link.source_rank);
        std::byte* target = before[link.target_rank].data() +
                            pool * receiver->layout().pool_bytes(link.target_rank);
        for (uint32_t slice = 0; slice < made.plan->slices_count(); ++slice) {
          made.plan->for_each_copy(link, slice, pages, [&](const kv::PageCopy& copy) {
            std::memcpy(target + copy.target_offset, source + copy.source_offset, copy.bytes);
          });
        }
      }
    }
    return before;
  }

  // Events.
  Handoff* find(handoff::Immediate immediate) {
    for (auto& [id, each] : handoffs) {
      if (handoff::immediate_of(id.key) == immediate) return &each;
    }
    return nullptr;
  }
  void on_arrived(handoff::Immediate immediate, uint32_t rank) override {
    EXPECT_TRUE(find(immediate)->arrived.insert(rank).second) << "told twice";
  }
  void on_verdict(handoff::Key key, uint32_t rank, Result<void> verdict) override {
    EXPECT_TRUE(find(handoff::immediate_of(key))->verdicts.emplace(rank, verdict).second);
  }
  void on_fenced(handoff::LinkId link) override { EXPECT_TRUE(fenced.insert(link.value).second); }
  void on_delivered(handoff::LinkedKey id, uint32_t writes) override {
    handoffs.at(id).delivered += writes;
  }
  void on_write_failed(handoff::LinkedKey id, uint32_t writes, Error error) override {
    handoffs.at(id).failed += writes;
    handoffs.at(id).error = std::move(error);
  }
  void on_link_broken(handoff::LinkId link, Error error) override {
    EXPECT_TRUE(broken.emplace(link.value, std::move(error)).second) << "told twice";
  }

  WorldPlace place;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<PlainKvRank>> source_memory, target_memory;
  std::map<handoff::LinkedKey, Handoff> handoffs;
  std::set<uint64_t> fenced;
  std::map<uint64_t, Error> broken;
  std::unique_ptr<KvSender> sender;
  std::unique_ptr<KvReceiver> receiver;
};

}  // namespace tandem::cluster::testing
