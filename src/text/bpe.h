#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/pair_queue.h"

namespace tandem::text {

/// Which pairs of tokens merge, in which order, into what. A hash table in one array, because a
/// lookup per pair of bytes is most of what encoding does.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;  ///< lower merges first
    TokenId merged;
  };
  /// Has room for this many insertions.
  explicit MergeTable(size_t merges_count_max);

  /// A pair that is inserted again takes the later merge.
  void insert(TokenId left, TokenId right, Merge merge);
  /// nullptr if the pair does not merge. Valid until the next insert.
  const Merge* find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;  // a power of two of them, at most half full
  int hash_shift_;
};

/// Merges the bytes of pieces into tokens: again and again the pair of the lowest rank, the
/// leftmost of equals. O(n log n) in the piece. Keeps its scratch memory between pieces, so one
/// encoder serves one thread; it borrows the table.
class BpeEncoder {
 public:
  explicit BpeEncoder(const MergeTable& merges) : merges_(merges) {}

  /// `byte_tokens` has the token of each of the 256 bytes. Appends to `ids`.
  void encode(std::string_view piece, std::span<const TokenId> byte_tokens,
              std::vector<TokenId>& ids);

 private:
  // A token of the piece in a doubly linked list. A token that was merged into its left
  // neighbour has kNoToken.
  struct Symbol {
    TokenId token;
    uint32_t previous;
    uint32_t next;
  };
  void push_pair(uint32_t left);
  void merge_pairs();

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  PairQueue queue_;
};

}  // namespace tandem::text
