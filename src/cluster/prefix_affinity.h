#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/strong_id.h"
#include "kv/hash.h"

namespace tandem::cluster {

/// A cache that prompts may hit: one rank of one life of a worker. Whoever starts again gets
/// another number, as its cache is empty.
using PlaceId = StrongId<struct PlaceTag, uint32_t>;

/// Names a prompt's prefixes: key i stands for the salt and the first (i + 1) * block_tokens
/// tokens. The block is the router's own: pages of workers may have other sizes.
struct PrefixKeys {
  kv::HashFunction hash;
  uint64_t seed;
  uint32_t block_tokens;
  std::vector<uint64_t> of(std::span<const TokenId> prompt, std::string_view salt) const;
};

/// What the router believes to be in the caches, from where it has sent prompts. A guess: workers
/// evict what they like, and keys may collide. It decides about speed only; a worker proves its own
/// hits. Bounded; forgets what was longest not asked for, of a prompt its end first.
class PrefixAffinity {
 public:
  /// At most `entries_max` (place, key) pairs; about 100 bytes each.
  explicit PrefixAffinity(size_t entries_max) : entries_max_(entries_max) {}

  /// A prompt with these keys goes to the place.
  void record(PlaceId place, std::span<const uint64_t> keys);
  /// How many of the first keys the place may have.
  size_t matched(PlaceId place, std::span<const uint64_t> keys) const;
  /// The place is gone.
  void forget(PlaceId place);

  size_t size() const { return order_.size(); }

 private:
  struct Entry {
    PlaceId place;
    uint64_t key;
  };
  using Order = std::list<Entry>;  // the latest first

  void erase(Order::iterator entry);

  const size_t entries_max_;
  Order order_;
  std::map<PlaceId, std::unordered_map<uint64_t, Order::iterator>> places_;
};

}  // namespace tandem::cluster
