#include "cluster/prefix_affinity.h"

namespace tandem::cluster {

std::vector<uint64_t> PrefixKeys::of(std::span<const TokenId> prompt, std::string_view salt) const {
  std::vector<uint64_t> keys;
  uint64_t key = hash(std::as_bytes(std::span(salt)), seed);
  for (size_t end = block_tokens; end <= prompt.size(); end += block_tokens) {
    key = hash(std::as_bytes(prompt.subspan(end - block_tokens, block_tokens)), key);
    keys.push_back(key);
  }
  return keys;
}

void PrefixAffinity::record(PlaceId place, std::span<const uint64_t> keys) {
  // More than fits would push out its own beginning.
  keys = keys.first(std::min(keys.size(), entries_max_));
  // From the end, so that the beginning is the latest: without it the rest is of no use.
  for (size_t i = keys.size(); i-- > 0;) {
    auto& known = places_[place];
    const auto found = known.find(keys[i]);
    if (found != known.end()) {
      order_.splice(order_.begin(), order_, found->second);
      continue;
    }
    order_.push_front({place, keys[i]});
    known.emplace(keys[i], order_.begin());
    if (order_.size() > entries_max_) erase(std::prev(order_.end()));
  }
}

size_t PrefixAffinity::matched(PlaceId place, std::span<const uint64_t> keys) const {
  const auto known = places_.find(place);
  if (known == places_.end()) return 0;
  size_t count = 0;
  while (count < keys.size() && known->second.contains(keys[count])) ++count;
  return count;
}

void PrefixAffinity::forget(PlaceId place) {
  const auto known = places_.find(place);
  if (known == places_.end()) return;
  for (const auto& [key, entry] : known->second) order_.erase(entry);
  places_.erase(known);
}

void PrefixAffinity::erase(Order::iterator entry) {
  const auto known = places_.find(entry->place);
  known->second.erase(entry->key);
  if (known->second.empty()) places_.erase(known);
  order_.erase(entry);
}

}  // namespace tandem::cluster
