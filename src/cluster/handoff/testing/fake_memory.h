#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cluster/handoff/key.h"
#include "cluster/handoff/message.h"

namespace tandem::cluster::handoff::testing {

struct Shape {
  uint32_t layers = 2;
  uint32_t source_ranks = 2;
  uint32_t target_ranks = 2;  // a source rank writes to the target rank of its remainder
  uint32_t page_tokens = 4;
  uint32_t pages = 12;
};

/// Where in a hand-off's range its page `index` ends, as a position.
inline uint32_t page_end(const Start& start, const Shape& shape, uint32_t index) {
  const auto last = static_cast<uint32_t>(start.tokens.size() - 1);
  return std::min(last, (start.first_position / shape.page_tokens + index + 1) * shape.page_tokens);
}

inline uint32_t pages_count(const Start& start, const Shape& shape) {
  const auto last = static_cast<uint32_t>(start.tokens.size() - 1);
  return (last + shape.page_tokens - 1) / shape.page_tokens -
         start.first_position / shape.page_tokens;
}

/// What stands for the K and V of a slice: a hash of the tokens that they follow from.
inline uint64_t slice_value(const Start& start, const Shape& shape, uint32_t index, uint32_t layer,
                            uint32_t rank) {
  uint64_t value = (uint64_t{layer} << 32 | rank) + 0x9e37'79b9'7f4a'7c15;
  for (const TokenId token : std::span(start.tokens).first(page_end(start, shape, index))) {
    value = (value ^ static_cast<uint32_t>(token)) * 0xff51'afd7'ed55'8ccd;
    value ^= value >> 29;
  }
  return value;
}

/// Data writes of all pages and one write of sidecars, per layer and source rank.
inline std::vector<uint32_t> writes_of(const Start& start, const Shape& shape) {
  std::vector<uint32_t> writes(shape.target_ranks);
  for (uint32_t rank = 0; rank < shape.source_ranks; ++rank) {
    writes[rank % shape.target_ranks] += shape.layers * (pages_count(start, shape) + 1);
  }
  return writes;
}

/// The decoder's pages: who holds them and what is in them. Anything that the protocol promises
/// never to do becomes a finding.
class FakeMemory {
 public:
  FakeMemory(const Shape& shape, std::vector<std::string>& findings)
      : shape_(shape), findings_(findings), pages_(shape.pages) {
    for (Page& page : pages_) page.cells.resize(shape.layers * shape.source_ranks);
  }

  /// Free pages, lowest first; none when there are too few.
  std::optional<std::vector<PageId>> find_free(uint32_t count) const {
    std::vector<PageId> free;
    for (uint32_t page = 0; page < pages_.size() && free.size() < count; ++page) {
      if (pages_[page].handoffs.empty() && !pages_[page].engine) free.push_back(PageId{page});
    }
    return free.size() == count ? std::optional(free) : std::nullopt;
  }
  bool is_all_free() const { return find_free(shape_.pages).has_value(); }

  void hold(std::span<const PageId> pages, Key key) {
    for (const PageId page : pages) pages_[page.value].handoffs.insert(key);
  }
  /// Also what a retry leaves to its former hand-off stays held by that one.
  void release(Key key) {
    for (Page& page : pages_) page.handoffs.erase(key);
  }
  void hold_by_engine(std::span<const PageId> pages, RequestId request) {
    for (const PageId page : pages) {
      if (pages_[page.value].engine) findings_.push_back("a page has two owners");
      pages_[page.value].engine = request;
    }
  }
  void release_engine(RequestId request) {
    for (Page& page : pages_) {
      if (page.engine == request) page.engine.reset();
    }
  }

  void land(Key key, PageId page, uint32_t layer, uint32_t rank, uint64_t value) {
    expect_held(key, page);
    cell(page, layer, rank).value = value;
  }
  void land_sidecar(Key key, PageId page, uint32_t layer, uint32_t rank, uint64_t value) {
    expect_held(key, page);
    cell(page, layer, rank).sidecar = {key.epoch, value};
  }
  void compute_here(const Start& start) {
    for_each_cell(start, std::nullopt, [&](Cell& cell, uint64_t value) { cell.value = value; });
  }

  /// What a target rank's kernel finds.
  Result<void> verify(Key key, const Start& start, uint32_t target_rank) {
    bool fits = true;
    for_each_cell(start, target_rank, [&](Cell& cell, uint64_t) {
      fits = fits && cell.sidecar.epoch == key.epoch && cell.sidecar.value == cell.value;
    });
    if (fits) return {};
    return make_error(Code::kDataLoss, "the pages are not what their sidecars say");
  }
  void expect_right(const Start& start, const char* when) {
    bool is_right = true;
    for_each_cell(start, std::nullopt,
                  [&](Cell& cell, uint64_t value) { is_right = is_right && cell.value == value; });
    if (!is_right) findings_.push_back(std::string("wrong data ") + when);
  }

 private:
  struct Sidecar {
    uint64_t epoch = 0;
    uint64_t value = 0;
  };
  struct Cell {
    uint64_t value = 0xdead'dead;
    Sidecar sidecar;
  };
  struct Page {
    std::vector<Cell> cells;  // [layers * source_ranks]
    std::set<Key> handoffs;
    std::optional<RequestId> engine;
  };

  Cell& cell(PageId page, uint32_t layer, uint32_t rank) {
    return pages_[page.value].cells[layer * shape_.source_ranks + rank];
  }
  void expect_held(Key key, PageId page) {
    if (!pages_[page.value].handoffs.contains(key)) {
      findings_.push_back("a write landed in page " + std::to_string(page.value) +
                          ", which its hand-off does not hold");
    }
  }
  template <typename Visit>
  void for_each_cell(const Start& start, std::optional<uint32_t> target_rank, Visit visit) {
    for (uint32_t i = 0; i < start.pages.size(); ++i) {
      for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
        for (uint32_t rank = 0; rank < shape_.source_ranks; ++rank) {
          if (target_rank && rank % shape_.target_ranks != *target_rank) continue;
          visit(cell(start.pages[i], layer, rank), slice_value(start, shape_, i, layer, rank));
        }
      }
    }
  }

  Shape shape_;
  std::vector<std::string>& findings_;
  std::vector<Page> pages_;
};

}  // namespace tandem::cluster::handoff::testing
