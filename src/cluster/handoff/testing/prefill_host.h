#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "cluster/handoff/prefiller.h"
#include "cluster/handoff/testing/world.h"

namespace tandem::cluster::handoff::testing {

/// A write under way: what it does where it lands.
struct FlyingWrite {
  LinkedKey handoff;
  uint32_t source_rank = 0;
  bool is_landed = false;
  std::function<void(bool is_damaged)> land;
};

/// One process of a prefill worker: the state machine, an engine that computes in its own time, and
/// its writes. The decoder's side is reached by `land` and `count`.
class PrefillHost final : public PrefillerPorts {
 public:
  struct Target {
    std::function<void(LinkedKey, PageId, uint32_t layer, uint32_t rank, uint64_t value)> land;
    std::function<void(LinkedKey, PageId, uint32_t layer, uint32_t rank, uint64_t value)> sidecar;
    std::function<void(LinkedKey, uint32_t target_rank)> count;
  };
  PrefillHost(World& world, Target target)
      : world_(world),
        target_(std::move(target)),
        machine_({.source_ranks = world.shape.source_ranks, .layers = world.shape.layers}, *this) {
    tick();
  }

  void send(const Message& message) override { world_.carry(message.link, message, true); }

  Result<void> begin(LinkedKey handoff, const Start& start) override {
    if (refusal) return *refusal;
    if (start.writes != writes_of(start, world_.shape)) {
      return make_error(Code::kInvalidArgument, "the counts differ from the plan's");
    }
    held_[handoff] = start;
    const auto end = static_cast<uint32_t>(start.tokens.size() - 1);
    const auto cached = static_cast<uint32_t>(world_.dice.number(end + 1));
    compute(handoff, world_.dice.permille(300) ? cached : 0, 0);
    return {};
  }

  Submitted submit(LinkedKey handoff, const Slices& slices) override {
    if (!held_.contains(handoff)) world_.findings.push_back("slices of pages that are not held");
    const Start& start = held_[handoff];
    Submitted result;
    std::vector<Slice> written;
    for (uint32_t i = 0; i < start.pages.size(); ++i) {
      const uint32_t end = page_end(start, world_.shape, i);
      if (end > slices.tokens_from && end <= slices.tokens_end) {
        written.push_back(
            {start.pages[i], slice_value(start, world_.shape, i, slices.layer, slices.rank)});
      }
    }
    for (const Slice& slice : written) {
      if (!submit_one(handoff, slices, slice, result)) return result;
    }
    if (slices.tokens_end + 1 == start.tokens.size()) submit_sidecars(handoff, slices, result);
    return result;
  }

  void stop(LinkedKey handoff) override { stopped_.insert(handoff); }
  void release(LinkedKey handoff) override {
    if (held_.erase(handoff) == 0) world_.findings.push_back("source pages are released twice");
  }

  Prefiller& machine() { return machine_; }
  const std::shared_ptr<Process>& process() { return process_; }
  bool holds_nothing() const { return held_.empty() && machine_.handoffs_count() == 0; }
  /// Refuses to begin anything.
  std::optional<Error> refusal;
  /// The source's data differs from what was asked for: a stale page.
  bool is_stale = false;
  /// In units of a chunk of tokens of a layer.
  int64_t compute_us = 2000;
  /// 1 fails the first submission after now, 2 the second, ...
  int submission_to_fail = 0;
  /// Writes stay under way until `fly` is called.
  bool holds_writes = false;

  void fly() {
    holds_writes = false;
    for (auto& write : std::exchange(held_writes_, {})) take_off(std::move(write));
  }

 private:
  struct Slice {
    PageId page;
    uint64_t value;
  };

  bool submit_one(LinkedKey handoff, const Slices& slices, const Slice& slice, Submitted& result) {
    const bool is_chosen = submission_to_fail > 0 && --submission_to_fail == 0;
    if (is_chosen || world_.dice.permille(world_.faults.unsubmitted_writes)) {
      result.error = make_error(Code::kUnavailable, "the queue of rail 0 is closed");
      return false;
    }
    ++result.writes;
    const uint64_t value = slice.value ^ (is_stale ? 1 : 0);
    write({handoff, slices.rank, false, [=, this](bool is_damaged) {
             target_.land(handoff, slice.page, slices.layer, slices.rank,
                          value ^ (is_damaged ? 2 : 0));
           }});
    return true;
  }

  void submit_sidecars(LinkedKey handoff, const Slices& slices, Submitted& result) {
    ++result.writes;
    write({handoff, slices.rank, false, [=, this, start = held_[handoff]](bool is_damaged) {
             for (uint32_t i = 0; i < start.pages.size(); ++i) {
               const uint64_t value =
                   slice_value(start, world_.shape, i, slices.layer, slices.rank);
               target_.sidecar(handoff, start.pages[i], slices.layer, slices.rank,
                               value ^ (is_damaged ? 2 : 0));
             }
           }});
  }

  /// Token after token, layer after layer; ranks in step, some progress is skipped.
  void compute(LinkedKey handoff, uint32_t tokens, uint32_t layer) {
    world_.timeline.after(world_.dice.between(1, compute_us), [=, this] {
      process_->deliver([=, this] {
        if (stopped_.contains(handoff) || !held_.contains(handoff)) return;
        const auto end = static_cast<uint32_t>(held_[handoff].tokens.size() - 1);
        const uint32_t next = layer == 0 ? std::min<uint32_t>(end, tokens + 5) : tokens;
        const uint32_t layers = world_.shape.layers;
        if (layer + 1 == layers || !world_.dice.permille(200)) {
          for (uint32_t rank = 0; rank < world_.shape.source_ranks; ++rank) {
            machine_.on_computed(handoff, rank, layer, next, now_us());
          }
        }
        if (layer + 1 < layers) compute(handoff, next, layer + 1);
        if (layer + 1 == layers && next < end) compute(handoff, next, 0);
      });
    });
  }

  void write(FlyingWrite write) {
    if (holds_writes) {
      held_writes_.push_back(std::move(write));
    } else {
      take_off(std::move(write));
    }
  }

  void take_off(FlyingWrite write) {
    const bool is_late = world_.dice.permille(world_.faults.late_writes);
    const int64_t delay_us =
        is_late ? world_.dice.between(1, 9'000'000) : world_.dice.between(5, 900);
    world_.timeline.after(delay_us, [this, write = std::move(write)]() mutable {
      if (world_.faults.can_fence) {
        arrive(write);  // a NIC sends on, whatever became of the process
      } else {
        process_->deliver([this, write = std::move(write)] { arrive(write); });
      }
    });
  }

  void arrive(const FlyingWrite& write) {
    if (!held_.contains(write.handoff)) {
      world_.findings.push_back("a write reads source pages that were released");
    }
    const FakeLink& link = *world_.links.at(write.handoff.link.value);
    const Faults& faults = world_.faults;
    const bool is_refused = !link.is_registered || !link.decoder->is_alive;
    if (is_refused || world_.dice.permille(faults.failed_writes)) {
      later([this, handoff = write.handoff] {
        machine_.on_write_failed(handoff, 1, make_error(Code::kUnavailable, "a write failed"),
                                 now_us());
      });
      return;
    }
    // At most one promise of the fabric is broken per hand-off (docs/handoff.md).
    const auto breaks = [&](uint32_t chance) {
      return world_.dice.permille(chance) && broken_.insert(write.handoff).second;
    };
    write.land(breaks(faults.damaged_writes));
    const int copies = breaks(faults.uncounted_writes)   ? 0
                       : breaks(faults.recounted_writes) ? 2
                                                         : 1;
    const uint32_t target_rank = write.source_rank % world_.shape.target_ranks;
    for (int copy = 0; copy < copies; ++copy) {
      world_.timeline.after(world_.dice.between(1, 300), [this, write, target_rank] {
        target_.count(write.handoff, target_rank);
      });
    }
    later([this, handoff = write.handoff] { machine_.on_delivered(handoff, 1); });
  }

  void later(Timeline::Action action) {
    world_.timeline.after(world_.dice.between(1, 500),
                          [this, action = std::move(action)] { process_->deliver(action); });
  }
  void tick() {
    world_.timeline.after(20'000, [this] {
      process_->deliver([this] {
        if (machine_.next_timer_us().value_or(INT64_MAX) <= now_us()) machine_.on_timer(now_us());
      });
      if (process_->is_alive) tick();
    });
  }
  int64_t now_us() const { return world_.timeline.now_us(); }

  World& world_;
  Target target_;
  std::shared_ptr<Process> process_ = std::make_shared<Process>();
  std::map<LinkedKey, Start> held_;
  std::set<LinkedKey> stopped_;
  std::set<LinkedKey> broken_;
  std::vector<FlyingWrite> held_writes_;
  Prefiller machine_;
};

}  // namespace tandem::cluster::handoff::testing
