#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>

#include "io/virtual_executor.h"
#include "rpc/virtual_channel.h"
#include "rpc/virtual_membership.h"
#include "sim/sim_runner.h"
#include "transfer/loopback/loopback_fabric.h"

namespace tandem::sim {

/// Draws of one seed; what is drawn depends on the order of the calls alone.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  uint64_t seed() { return random_(); }
  /// In [0, end).
  uint64_t below(uint64_t end) { return random_() % end; }
  /// In [first, last].
  uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
  bool chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
  }
  template <typename T>
  T one_of(std::initializer_list<T> all) {
    return *(all.begin() + below(all.size()));
  }

 private:
  std::mt19937_64 random_;
};

/// What processes live in: virtual time, and networks whose faults follow from the seed.
struct Place {
  Place(uint64_t seed, Find when_found)
      : network(executor, seed),
        registry(executor, seed, std::chrono::seconds(5)),
        fabric(seed, [this] { return executor.now(); }),
        find(std::move(when_found)) {}

  io::VirtualExecutor executor;
  rpc::VirtualNetwork network;
  rpc::VirtualRegistry registry;
  transfer::LoopbackFabric fabric;
  const Find find;
};

}  // namespace tandem::sim
