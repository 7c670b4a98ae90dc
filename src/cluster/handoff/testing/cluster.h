#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/handoff/testing/decode_host.h"
#include "cluster/handoff/testing/prefill_host.h"
#include "cluster/handoff/testing/world.h"

namespace tandem::cluster::handoff::testing {

/// A decode group and some prefill workers, joined by links that are made anew when one is lost,
/// and the ends and returns of their processes. Dead hosts are kept: late events name them.
class Cluster {
 public:
  Cluster(uint64_t seed, const Shape& shape, const Decoder::Options& options,
          uint32_t prefillers_count)
      : world(seed, shape), options_(options) {
    decoders_.push_back(std::make_unique<DecodeHost>(world, options_));
    for (uint32_t i = 0; i < prefillers_count; ++i) add_prefiller();
    join_all();
    keep_joining();
  }

  DecodeHost& decoder() { return *decoders_.back(); }
  PrefillHost& prefiller(size_t index) { return *alive_.at(index); }
  size_t prefillers_count() const { return alive_.size(); }

  /// SIGKILL; another process takes its place `back_us` later.
  void kill_prefiller(size_t index, int64_t noticed_us, int64_t back_us) {
    PrefillHost* dead = alive_.at(index);
    dead->process()->kill();
    world.timeline.after(noticed_us, [this, dead] {
      for (const auto& [id, link] : world.links) {
        if (link->prefiller != dead->process()) continue;
        link->decoder->deliver([this, id = LinkId{id}, decoder = link->decoder.get()] {
          if (decoder == this->decoder().process().get()) {
            this->decoder().machine().on_process_gone(id, world.timeline.now_us());
          }
        });
      }
    });
    world.timeline.after(back_us, [this, index] {
      add_prefiller();
      alive_[index] = prefillers_.back().get();
      alive_.pop_back();
    });
  }
  void kill_decoder(int64_t noticed_us) {
    const auto dead = decoder().process();
    dead->kill();
    world.timeline.after(noticed_us, [this, dead] {
      for (PrefillHost* prefiller : alive_) {
        for (const auto& [id, link] : world.links) {
          if (link->decoder != dead || link->prefiller != prefiller->process()) continue;
          prefiller->process()->deliver(
              [prefiller, id = LinkId{id}] { prefiller->machine().on_link_lost(id); });
        }
      }
    });
    decoders_.push_back(std::make_unique<DecodeHost>(world, options_));
  }
  void stop(const std::shared_ptr<Process>& process, int64_t for_us) {
    process->is_stopped = true;
    world.timeline.after(for_us, [process] { process->resume(); });
  }

  bool is_quiet() {
    bool quiet = decoder().all_ended() && decoder().holds_nothing();
    for (PrefillHost* prefiller : alive_) quiet = quiet && prefiller->holds_nothing();
    return quiet;
  }
  /// No more faults from now on.
  void calm() {
    const bool can_fence = world.faults.can_fence;
    world.faults = {};
    world.faults.can_fence = can_fence;
  }

  World world;

 private:
  void add_prefiller() {
    PrefillHost::Target target;
    target.land = [this](LinkedKey h, PageId page, uint32_t layer, uint32_t rank, uint64_t value) {
      host_of(h.link).memory().land(h.key, page, layer, rank, value);
    };
    target.sidecar = [this](LinkedKey h, PageId page, uint32_t layer, uint32_t rank,
                            uint64_t value) {
      host_of(h.link).memory().land_sidecar(h.key, page, layer, rank, value);
    };
    target.count = [this](LinkedKey h, uint32_t rank) { host_of(h.link).count(h.key, rank); };
    prefillers_.push_back(std::make_unique<PrefillHost>(world, std::move(target)));
    alive_.push_back(prefillers_.back().get());
  }
  DecodeHost& host_of(LinkId link) {
    for (const auto& host : decoders_) {
      if (host->process() == world.links.at(link.value)->decoder) return *host;
    }
    return decoder();
  }

  /// A handshake wherever two processes run and have no link that is up.
  void join_all() {
    if (decoder().process()->is_stopped) return;
    for (PrefillHost* prefiller : alive_) {
      if (!prefiller->process()->is_alive || prefiller->process()->is_stopped) continue;
      if (!has_link(*prefiller)) join(*prefiller);
    }
  }
  bool has_link(PrefillHost& prefiller) {
    for (const auto& [id, link] : world.links) {
      if (link->prefiller == prefiller.process() && link->decoder == decoder().process() &&
          decoder().machine().is_up({id})) {
        return true;
      }
    }
    return false;
  }
  void join(PrefillHost& prefiller) {
    const LinkId id{world.dice.number(UINT64_MAX)};
    for (const auto& [old, link] : world.links) {  // the prefiller may or may not notice the end
      if (link->prefiller == prefiller.process() && world.dice.permille(500)) {
        prefiller.machine().on_link_lost({old});
      }
    }
    DecodeHost* target = &decoder();
    auto link = std::make_shared<FakeLink>();
    link->id = id;
    link->decoder = target->process();
    link->prefiller = prefiller.process();
    link->to_decoder = [this, target](const Message& message) {
      target->machine().on_message(message, world.timeline.now_us());
    };
    link->to_prefiller = [this, at = &prefiller](const Message& message) {
      at->machine().on_message(message, world.timeline.now_us());
    };
    world.links[id.value] = std::move(link);
    const int64_t now_us = world.timeline.now_us();
    prefiller.machine().on_link_up(id, now_us);
    target->machine().on_link_up(
        id, {"prefill-" + std::to_string(id.value % 1000), world.faults.can_fence}, now_us);
  }
  void keep_joining() {
    world.timeline.after(200'000, [this] {
      join_all();
      keep_joining();
    });
  }

  Decoder::Options options_;
  std::vector<std::unique_ptr<DecodeHost>> decoders_;
  std::vector<std::unique_ptr<PrefillHost>> prefillers_;
  std::vector<PrefillHost*> alive_;
};

}  // namespace tandem::cluster::handoff::testing
