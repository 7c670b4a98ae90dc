#include "sim/sim_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/testing/hash_runner.h"
#include "kv/hash.h"

namespace tandem::sim {
namespace {

using engine::testing::HashModel;

constexpr uint64_t kUnwritten = 0xdeaddeaddeaddead;

}  // namespace

uint64_t kv_value(uint64_t state, uint32_t layer, bool is_value, uint32_t head) {
  const uint64_t place = (uint64_t{head} * 64 + layer) * 2 + (is_value ? 1 : 0);
  return place == 0 ? state : HashModel::mix(state, place);
}

SimKvRank::SimKvRank(const kv::KvLayout& layout, uint32_t rank)
    : layout_(layout),
      rank_(rank),
      values_(2 * layout.layers * layout.pool_bytes(rank) / sizeof(uint64_t), kUnwritten) {
  TANDEM_CHECK(layout.token_bytes() == sizeof(uint64_t), "a head's token is one number");
}

uint64_t& SimKvRank::value(uint32_t layer, bool is_value, PageId page, uint32_t head,
                           uint32_t token) {
  const uint64_t pool = 2 * layer + (is_value ? 1 : 0);
  const uint64_t row = pool * layout_.pages_total + page.value;
  const uint64_t head_row = row * heads().count() + head - heads().first;
  return values_[head_row * layout_.page_tokens + token];
}

Result<void> SimKvRank::digest(const Slices& slices, std::span<uint64_t> digests) {
  const uint32_t page_tokens = layout_.page_tokens;
  const uint32_t first = slices.tokens.first / slices.slice_tokens;
  for (uint32_t i = 0; i < digests.size(); ++i) {
    const uint32_t begin = std::max((first + i) * slices.slice_tokens, slices.tokens.first);
    const uint32_t end = std::min((first + i + 1) * slices.slice_tokens, slices.tokens.end);
    std::vector<uint64_t> gathered;
    for (uint32_t head = 0; head < slices.heads_count; ++head) {
      for (uint32_t token = begin; token < end; ++token) {
        const uint32_t place = token / page_tokens - slices.tokens.first / page_tokens;
        gathered.push_back(value(slices.layer, slices.is_value, slices.pages[place],
                                 heads().first + slices.first_head + head, token % page_tokens));
      }
    }
    digests[i] = kv::xxh3_hash(std::as_bytes(std::span(gathered)), 0);
  }
  return {};
}

SimRunner::SimRunner(const kv::KvLayout& layout, std::string name, Find find)
    : layout_(layout), name_(std::move(name)), find_(std::move(find)) {
  for (uint32_t rank = 0; rank < layout_.ranks_count(); ++rank) {
    ranks_.push_back(std::make_unique<SimKvRank>(layout_, rank));
  }
}

Result<void> SimRunner::run(uint64_t step, std::span<const engine::BatchItem> items,
                            std::span<ops::SampledRow> sampled) {
  TANDEM_CHECK(step_ == 0, "one step at a time");
  step_ = step;
  parts_.clear();
  if (loses_step()) return make_error(Code::kInternal, name_ + ": the simulator lost this step");
  size_t samples = 0;
  for (const engine::BatchItem& item : items) {
    Part part{{item.pages.begin(), item.pages.end()}, item.start, {}};
    uint64_t state = 0;
    for (const TokenId token : item.tokens) {
      part.states.push_back(state = HashModel::after(state, token));
    }
    check(part, part.start, "before");
    uint64_t read = 0;
    if (item.start > 0) {
      const uint32_t last = item.start - 1;
      read = ranks_[0]->value(0, false, part.pages[last / layout_.page_tokens], 0,
                              last % layout_.page_tokens);
    }
    for (const TokenId token : item.tokens.subspan(item.start)) {
      read = HashModel::after(read, token);
    }
    if (item.sample != nullptr) {
      sampled[samples++] = {.token = HashModel::next(read, *item.sample)};
    }
    parts_.push_back(std::move(part));
  }
  return {};
}

void SimRunner::write(uint32_t rank, uint32_t layer) {
  SimKvRank& memory = *ranks_[rank];
  for (const Part& part : parts_) {
    for (uint32_t position = part.start; position < part.states.size(); ++position) {
      const PageId page = part.pages[position / layout_.page_tokens];
      for (const bool is_value : {false, true}) {
        for (uint32_t head = memory.heads().first; head < memory.heads().end; ++head) {
          memory.value(layer, is_value, page, head, position % layout_.page_tokens) =
              kv_value(part.states[position], layer, is_value, head);
        }
      }
    }
  }
}

void SimRunner::end_step() {
  for (const Part& part : parts_) {
    check(part, static_cast<uint32_t>(part.states.size()), "after");
  }
  parts_.clear();
  step_ = 0;
}

void SimRunner::check(const Part& part, uint32_t tokens_end, const char* when) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    SimKvRank& memory = *ranks_[rank];
    for (uint32_t position = 0; position < tokens_end; ++position) {
      const PageId page = part.pages[position / layout_.page_tokens];
      for (uint32_t place = 0; place < 2 * layout_.layers; ++place) {
        const uint32_t layer = place / 2;
        const bool is_value = place % 2 == 1;
        for (uint32_t head = memory.heads().first; head < memory.heads().end; ++head) {
          const uint64_t found =
              memory.value(layer, is_value, page, head, position % layout_.page_tokens);
          if (found == kv_value(part.states[position], layer, is_value, head)) continue;
          return find_(fmt::format(
              "{} rank {} reads a wrong {} {} step {}: position {} of {}, layer {}, head {}, page "
              "{}{}",
              name_, rank, is_value ? "V" : "K", when, step_, position, part.states.size(), layer,
              head, page.value, found == kUnwritten ? " (never written)" : ""));
        }
      }
    }
  }
}

}  // namespace tandem::sim
