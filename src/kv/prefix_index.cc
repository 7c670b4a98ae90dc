#include "kv/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::kv {

PrefixIndex::PrefixIndex(const Options& options)
    : pages_total_(options.pages_total),
      page_tokens_(options.page_tokens),
      hash_(options.hash),
      // A salt is held by an open root or by an indexed page directly below it.
      salts_({.salts_max = options.roots_max + options.pages_total,
              .hash = options.hash,
              .seed = options.seed}),
      table_(options.pages_total),
      parents_(options.pages_total, kNoNode),
      children_(options.pages_total, 0),
      keys_(options.pages_total, 0),
      tokens_(std::make_unique_for_overwrite<TokenId[]>(size_t{options.pages_total} *
                                                        options.page_tokens)) {}

PrefixNode PrefixIndex::open_root(std::string_view salt) {
  std::optional<uint32_t> number = salts_.acquire(salt);
  return number ? PrefixNode{pages_total_ + *number} : kNoNode;
}

void PrefixIndex::close_root(PrefixNode root) {
  TANDEM_CHECK(root != kNoNode, "closed root is no node");
  TANDEM_CHECK(is_root(root), "closed root is a page");
  salts_.release(salt_number(root));
}

std::span<const TokenId> PrefixIndex::tokens(PageId page) const {
  return {tokens_.get() + size_t{page.value} * page_tokens_, page_tokens_};
}

std::optional<PageId> PrefixIndex::parent_page(PageId page) const {
  TANDEM_CHECK(contains(page), "page is not indexed");
  PrefixNode parent = parents_[page.value];
  if (is_root(parent)) return std::nullopt;
  return PageId{parent.value};
}

uint64_t PrefixIndex::child_key(PrefixNode parent, std::span<const TokenId> tokens) const {
  TANDEM_CHECK(parent != kNoNode, "a page needs a parent node");
  TANDEM_CHECK(tokens.size() == page_tokens_, "only full pages are indexed");
  uint64_t parent_key = is_root(parent) ? salts_.key(salt_number(parent)) : keys_[parent.value];
  return hash_(std::as_bytes(tokens), parent_key);
}

std::optional<PageId> PrefixIndex::find_under_key(uint64_t key, PrefixNode parent,
                                                  std::span<const TokenId> tokens) const {
  auto found = table_.find(key, [&](uint32_t page) {
    return parents_[page] == parent && std::ranges::equal(this->tokens(PageId{page}), tokens);
  });
  if (!found) return std::nullopt;
  return PageId{*found};
}

std::optional<PageId> PrefixIndex::find(PrefixNode parent, std::span<const TokenId> tokens) const {
  return find_under_key(child_key(parent, tokens), parent, tokens);
}

bool PrefixIndex::insert(PrefixNode parent, std::span<const TokenId> tokens, PageId page) {
  TANDEM_CHECK(!contains(page), "page is indexed already");
  uint64_t key = child_key(parent, tokens);
  if (find_under_key(key, parent, tokens)) return false;
  if (is_root(parent)) {
    salts_.retain(salt_number(parent));
  } else {
    TANDEM_CHECK(contains(PageId{parent.value}), "the parent is not indexed");
    ++children_[parent.value];
  }
  std::ranges::copy(tokens, tokens_.get() + size_t{page.value} * page_tokens_);
  parents_[page.value] = parent;
  children_[page.value] = 0;
  keys_[page.value] = key;
  table_.insert(key, page.value);
  return true;
}

void PrefixIndex::erase(PageId page) {
  TANDEM_CHECK(contains(page), "page is not indexed");
  TANDEM_CHECK(children_[page.value] == 0, "a parent must outlive its children");
  table_.erase(keys_[page.value], page.value);
  PrefixNode parent = parents_[page.value];
  parents_[page.value] = kNoNode;
  if (is_root(parent)) {
    salts_.release(salt_number(parent));
  } else {
    --children_[parent.value];
  }
}

void PrefixIndex::check_invariants() const {
  uint32_t indexed = 0;
  std::vector<uint32_t> children(pages_total_, 0);
  std::vector<uint32_t> salt_children(salts_.capacity(), 0);
  for (uint32_t i = 0; i < pages_total_; ++i) {
    PageId page{i};
    if (!contains(page)) continue;
    ++indexed;
    PrefixNode parent = parents_[i];
    if (is_root(parent)) {
      ++salt_children[salt_number(parent)];
    } else {
      TANDEM_CHECK(contains(PageId{parent.value}), "a child outlived its parent");
      ++children[parent.value];
    }
    TANDEM_CHECK(keys_[i] == child_key(parent, tokens(page)), "a key is not that of its tokens");
    TANDEM_CHECK(find(parent, tokens(page)) == page, "an indexed page is lost, or there twice");
  }
  TANDEM_CHECK(indexed == table_.size(), "the table holds pages that are not indexed");
  for (uint32_t i = 0; i < pages_total_; ++i) {
    if (!contains(PageId{i})) continue;
    TANDEM_CHECK(children[i] == children_[i], "the children of a page are miscounted");
  }
  for (uint32_t i = 0; i < salts_.capacity(); ++i) {
    TANDEM_CHECK(salt_children[i] <= salts_.holders(i), "a page outlived its salt");
  }
}

}  // namespace tandem::kv
