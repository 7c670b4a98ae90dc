#include "text/bpe.h"

#include <bit>

#include "base/check.h"

namespace tandem::text {
namespace {

constexpr TokenId kNoToken = -1;
constexpr uint32_t kNoSymbol = UINT32_MAX;
// Tokens are not negative, so no pair has this key.
constexpr uint64_t kEmptyKey = UINT64_MAX;

uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t merges_count_max) {
  const size_t slots_count = std::bit_ceil(2 * merges_count_max + 2);
  slots_.assign(slots_count, Slot{kEmptyKey, {}});
  hash_shift_ = 64 - std::countr_zero(slots_count);
}

// Linear probing from a Fibonacci hash: 2^64 divided by the golden ratio spreads keys that differ
// in any bits over the top bits of the product.
size_t MergeTable::slot_of(uint64_t key) const {
  size_t slot = (key * 0x9E3779B97F4A7C15u) >> hash_shift_;
  while (slots_[slot].key != key && slots_[slot].key != kEmptyKey) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  TANDEM_DCHECK(left >= 0 && right >= 0 && merge.merged >= 0);
  const uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == kEmptyKey ? nullptr : &slot.merge;
}

// Queues the pair that starts at a symbol, if it merges.
void BpeEncoder::push_pair(uint32_t left) {
  const uint32_t right = symbols_[left].next;
  if (right == kNoSymbol) return;
  const MergeTable::Merge* merge = merges_.find(symbols_[left].token, symbols_[right].token);
  if (merge == nullptr) return;
  queue_.push({merge->rank, left});
}

void BpeEncoder::merge_pairs() {
  while (const auto next = queue_.pop()) {
    const auto [rank, left] = *next;
    // Entries stay when a merge next to them changes their pair. A rank belongs to one pair only,
    // so it tells such an entry apart.
    Symbol& symbol = symbols_[left];
    if (symbol.token == kNoToken || symbol.next == kNoSymbol) continue;
    const uint32_t right = symbol.next;
    const MergeTable::Merge* merge = merges_.find(symbol.token, symbols_[right].token);
    if (merge == nullptr || merge->rank != rank) continue;

    symbol.token = merge->merged;
    symbol.next = symbols_[right].next;
    symbols_[right].token = kNoToken;
    if (symbol.next != kNoSymbol) symbols_[symbol.next].previous = left;

    push_pair(left);
    if (symbol.previous != kNoSymbol) push_pair(symbol.previous);
  }
}

void BpeEncoder::encode(std::string_view piece, std::span<const TokenId> byte_tokens,
                        std::vector<TokenId>& ids) {
  TANDEM_CHECK(byte_tokens.size() == 256);
  TANDEM_CHECK(piece.size() < kNoSymbol, "a piece is indexed with 32 bits");
  if (piece.empty()) return;
  const auto count = static_cast<uint32_t>(piece.size());
  symbols_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    symbols_[i] = {byte_tokens[static_cast<uint8_t>(piece[i])], i == 0 ? kNoSymbol : i - 1,
                   i + 1 == count ? kNoSymbol : i + 1};
  }
  queue_.reset(count);
  for (uint32_t i = 0; i < count; ++i) push_pair(i);
  merge_pairs();

  // The first symbol is never merged into another one.
  for (uint32_t i = 0; i != kNoSymbol; i = symbols_[i].next) ids.push_back(symbols_[i].token);
}

}  // namespace tandem::text
