#include "kv/salt_table.h"

#include <cstring>
#include <span>

#include "base/check.h"

namespace tandem::kv {

SaltTable::SaltTable(const Options& options)
    : hash_(options.hash),
      seed_(options.seed),
      table_(options.salts_max),
      bytes_(std::make_unique_for_overwrite<char[]>(size_t{options.salts_max} * kSaltBytesMax)),
      sizes_(options.salts_max),
      holders_(options.salts_max),
      keys_(options.salts_max),
      unused_(options.salts_max) {
  // The highest number first, so that the lowest is used first.
  for (uint32_t i = 0; i < options.salts_max; ++i) unused_[i] = options.salts_max - 1 - i;
}

std::string_view SaltTable::text(uint32_t number) const {
  return {bytes_.get() + size_t{number} * kSaltBytesMax, sizes_[number]};
}

std::optional<uint32_t> SaltTable::acquire(std::string_view salt) {
  if (salt.size() > kSaltBytesMax) return std::nullopt;
  uint64_t key = hash_(std::as_bytes(std::span(salt)), seed_);
  auto found = table_.find(key, [&](uint32_t number) { return text(number) == salt; });
  if (found) {
    ++holders_[*found];
    return found;
  }
  TANDEM_CHECK(!unused_.empty(), "more salts are held than sequences and pages can hold");
  uint32_t number = unused_.back();
  unused_.pop_back();
  if (!salt.empty()) {
    std::memcpy(bytes_.get() + size_t{number} * kSaltBytesMax, salt.data(), salt.size());
  }
  sizes_[number] = static_cast<uint32_t>(salt.size());
  holders_[number] = 1;
  keys_[number] = key;
  table_.insert(key, number);
  return number;
}

void SaltTable::retain(uint32_t number) {
  TANDEM_CHECK(holders_[number] > 0, "retained salt is not in use");
  ++holders_[number];
}

void SaltTable::release(uint32_t number) {
  TANDEM_CHECK(holders_[number] > 0, "released salt is not in use");
  if (--holders_[number] > 0) return;
  table_.erase(keys_[number], number);
  unused_.push_back(number);
}

}  // namespace tandem::kv
