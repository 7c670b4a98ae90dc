#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/batch.h"
#include "engine/limits.h"

namespace tandem::engine::testing {

/// A model of hashes: the state after a token is a hash of all tokens up to it, and the next token
/// follows from that state and the row's seed, choice and position. K and V of a slot are the state
/// itself, so that reading a page which belongs to somebody else, was evicted or never written is
/// noticed at once.
struct HashModel {
  static uint64_t mix(uint64_t state, uint64_t value) {
    uint64_t x = (state ^ (value + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return x ^ (x >> 32);
  }
  static uint64_t after(uint64_t state, TokenId token) {
    return mix(state, static_cast<uint64_t>(token));
  }
  static TokenId next(uint64_t state, const ops::SampleRow& row) {
    const uint64_t key = mix(mix(row.seed, row.choice_index), row.position);
    auto token =
        static_cast<TokenId>(mix(state, key) % static_cast<uint64_t>(row.vocabulary_limit));
    while (std::ranges::find(row.masked_tokens, token) != row.masked_tokens.end()) {
      token = (token + 1) % row.vocabulary_limit;
    }
    return token;
  }
};

/// Runs HashModel over pages as the engine deals them out, and holds every batch against what the
/// engine promises. What is wrong is said in `findings`.
class HashRunner final : public StepRunner {
 public:
  enum class Fault { kNone, kStepFails, kRowIsNotFinite, kItemsFail };

  explicit HashRunner(const Limits& limits)
      : limits_(limits), slots_(size_t{limits.pages_total} * limits.page_tokens, kUnwritten) {}

  /// Decides what goes wrong in the next step; none by default.
  std::function<Fault()> fault = [] { return Fault::kNone; };
  /// Sees every batch before it runs.
  std::function<void(std::span<const BatchItem>)> observe = [](std::span<const BatchItem>) {};

  std::vector<std::string> findings;

  Result<void> run(uint64_t step, std::span<const BatchItem> items,
                   std::span<ops::SampledRow> sampled) override {
    expect(step == ++steps_, "steps are numbered one by one");
    check_limits(items, sampled.size());
    check_pages(items);
    observe(items);
    const Fault now = fault();
    size_t sampled_index = 0;
    failed_.clear();
    for (size_t i = 0; i < items.size(); ++i) {
      const BatchItem& item = items[i];
      uint64_t state = compute(item);
      if (now == Fault::kStepFails) spoil(item);
      if (now == Fault::kItemsFail && i % 2 == 0) {
        spoil(item);
        state = kUnwritten;  // what it samples is wrong too
        failed_.push_back({i, make_error(Code::kUnavailable, "the test failed this item")});
      }
      if (item.sample == nullptr) continue;
      ops::SampledRow& row = sampled[sampled_index++];
      row = {.token = HashModel::next(state, *item.sample)};
      row.finite = now != Fault::kRowIsNotFinite || sampled_index != 1;
    }
    if (now == Fault::kStepFails) return make_error(Code::kInternal, "the test lost this step");
    return {};
  }

  std::span<const FailedItem> failed_items() const override { return failed_; }
  /// K and V of a model of one layer: one number a slot.
  std::span<uint64_t> slots() { return slots_; }

 private:
  static constexpr uint64_t kUnwritten = 0xdeaddeaddeaddead;

  void expect(bool holds, const char* promise) {
    if (!holds) findings.emplace_back(promise);
  }

  void check_limits(std::span<const BatchItem> items, size_t samples_count) {
    size_t tokens = 0;
    size_t samples = 0;
    for (const BatchItem& item : items) {
      expect(item.start < item.tokens.size(), "every item computes a token");
      expect(item.tokens.size() < limits_.model_length_max, "no token after the last is computed");
      tokens += item.tokens.size() - item.start;
      samples += item.sample != nullptr ? 1 : 0;
    }
    expect(!items.empty(), "no empty step runs");
    expect(items.size() <= limits_.sequences_max, "max_num_seqs holds");
    expect(tokens <= limits_.step_tokens_max, "max_num_batched_tokens holds");
    expect(samples == samples_count, "one result per sampling item");
  }

  /// A page that is written belongs to one item and appears there once.
  void check_pages(std::span<const BatchItem> items) {
    std::multiset<uint32_t> seen;
    for (const BatchItem& item : items) {
      expect(item.pages.size() * limits_.page_tokens >= item.tokens.size(), "pages cover the item");
      for (PageId page : item.pages) {
        expect(page.value < limits_.pages_total, "pages are of the pool");
        seen.insert(page.value);
      }
    }
    for (const BatchItem& item : items) {
      for (size_t i = item.start / limits_.page_tokens; i < item.pages.size(); ++i) {
        expect(seen.count(item.pages[i].value) == 1, "nobody shares a page that is written");
      }
    }
  }

  uint64_t& slot(const BatchItem& item, size_t position) {
    const size_t page = item.pages[position / limits_.page_tokens].value;
    return slots_[page * limits_.page_tokens + position % limits_.page_tokens];
  }

  uint64_t compute(const BatchItem& item) {
    uint64_t state = 0;
    for (size_t position = 0; position < item.tokens.size(); ++position) {
      state = HashModel::after(state, item.tokens[position]);
      if (position < item.start) {
        expect(slot(item, position) == state, "what is read is what was computed for it");
      } else {
        slot(item, position) = state;
      }
    }
    return state;
  }

  void spoil(const BatchItem& item) {
    for (size_t position = item.start; position < item.tokens.size(); ++position) {
      slot(item, position) = kUnwritten;
    }
  }

  const Limits limits_;
  uint64_t steps_ = 0;
  std::vector<FailedItem> failed_;
  std::vector<uint64_t> slots_;  // [pages * page_tokens]
};

}  // namespace tandem::engine::testing
