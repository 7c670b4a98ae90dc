#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kv/hash.h"
#include "kv/probe_table.h"

namespace tandem::kv {

/// The longest salt that takes part in sharing; the front end refuses longer ones.
inline constexpr uint32_t kSaltBytesMax = 256;

/// Gives every salt in use a small number, so that equality of salts is equality of numbers. A
/// number means the same bytes for as long as anyone holds it.
///
/// Owns copies of the salts; all memory is taken by the constructor. One thread.
class SaltTable {
 public:
  struct Options {
    uint32_t salts_max;
    HashFunction hash;
    uint64_t seed;
  };
  explicit SaltTable(const Options& options);

  /// The number of this salt, held once more; nothing when the salt is longer than kSaltBytesMax.
  std::optional<uint32_t> acquire(std::string_view salt);
  void retain(uint32_t number);
  void release(uint32_t number);

  uint64_t key(uint32_t number) const { return keys_[number]; }
  uint32_t holders(uint32_t number) const { return holders_[number]; }
  uint32_t size() const { return table_.size(); }
  uint32_t capacity() const { return static_cast<uint32_t>(holders_.size()); }

 private:
  std::string_view text(uint32_t number) const;

  HashFunction hash_;
  uint64_t seed_;
  ProbeTable table_;
  // Per number. The bytes are left unwritten at first, so that unused ones cost no real memory.
  std::unique_ptr<char[]> bytes_;  // [salts_max][kSaltBytesMax]
  std::vector<uint32_t> sizes_;
  std::vector<uint32_t> holders_;
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> unused_;
};

}  // namespace tandem::kv
