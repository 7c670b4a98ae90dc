#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kv/hash.h"
#include "kv/probe_table.h"
#include "kv/salt_table.h"

namespace tandem::kv {

/// A place in the forest of known prefixes: a salt (a root) or an indexed page below it.
using PrefixNode = StrongId<struct PrefixNodeTag, uint32_t>;
inline constexpr PrefixNode kNoNode{UINT32_MAX};

/// Finds full pages by content. A page is named by its parent node and its token ids, so its name
/// stands for the salt and all tokens up to its end. The key in the table is chained the same way
/// (hash of the token ids, seeded by the parent's key; a salt's by the process's seed), but a key
/// only selects candidates: a hit needs the same parent node and equal token ids.
///
/// A parent outlives its children, so a node never changes its meaning while something hangs on
/// it. The index knows nothing about who holds a page.
///
/// Owns token ids, links and salts; all memory is taken by the constructor. One thread.
class PrefixIndex {
 public:
  struct Options {
    uint32_t pages_total;
    uint32_t page_tokens;
    uint32_t roots_max;  ///< roots opened and not closed, at most
    HashFunction hash;
    uint64_t seed;
  };
  explicit PrefixIndex(const Options& options);

  /// The root of a salt, kept until closed as often as opened; kNoNode for an overlong salt.
  PrefixNode open_root(std::string_view salt);
  void close_root(PrefixNode root);

  /// The page with these page_tokens token ids below `parent`.
  std::optional<PageId> find(PrefixNode parent, std::span<const TokenId> tokens) const;
  /// Adds `page`, unless an equal one is there already: then false, and nothing changes.
  bool insert(PrefixNode parent, std::span<const TokenId> tokens, PageId page);
  /// Forgets a page without children.
  void erase(PageId page);

  uint32_t size() const { return table_.size(); }
  bool contains(PageId page) const { return parents_[page.value] != kNoNode; }
  PrefixNode node(PageId page) const { return PrefixNode{page.value}; }
  /// The page above an indexed page; nothing below a root.
  std::optional<PageId> parent_page(PageId page) const;
  std::span<const TokenId> tokens(PageId page) const;

  /// Debug: ends the process when table, links, counts and salts contradict each other.
  void check_invariants() const;

 private:
  bool is_root(PrefixNode node) const { return node.value >= pages_total_; }
  uint32_t salt_number(PrefixNode root) const { return root.value - pages_total_; }
  uint64_t child_key(PrefixNode parent, std::span<const TokenId> tokens) const;
  std::optional<PageId> find_under_key(uint64_t key, PrefixNode parent,
                                       std::span<const TokenId> tokens) const;

  uint32_t pages_total_;
  uint32_t page_tokens_;
  HashFunction hash_;
  SaltTable salts_;
  ProbeTable table_;
  // Per page; meaningful only while the page is indexed, that is, while its parent is a node.
  std::vector<PrefixNode> parents_;
  std::vector<uint32_t> children_;
  std::vector<uint64_t> keys_;
  std::unique_ptr<TokenId[]> tokens_;  // [pages_total][page_tokens]
};

}  // namespace tandem::kv
