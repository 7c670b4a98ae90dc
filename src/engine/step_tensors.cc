#include "engine/step_tensors.h"

namespace tandem::engine {
namespace {

template <typename View>
View carve(int32_t*& at, View view) {
  view.data = at;
  at += (view.size() + 15) / 16 * 16;  // whole cache lines
  return view;
}

}  // namespace

size_t StepTensors::bytes_needed(Limits limits) {
  const int64_t elements = 3 * limits.tokens_max + 2 * limits.sequences_max + 1 +
                           limits.sequences_max * limits.pages_max + limits.rows_max;
  return static_cast<size_t>(elements + 7 * 16) * sizeof(int32_t);
}

Result<StepTensors> StepTensors::create(Device& device, Limits limits) {
  TANDEM_CHECK(limits.tokens_max > 0 && limits.sequences_max > 0 && limits.page_tokens > 0);
  using Vector = TensorView<int32_t, 1>;
  using Matrix = TensorView<int32_t, 2>;
  StepTensors t;
  t.limits_ = limits;
  t.tokens_ = t.positions_ = t.slots_ = Vector::make(nullptr, {limits.tokens_max});
  t.query_start_ = Vector::make(nullptr, {limits.sequences_max + 1});
  t.kv_tokens_ = Vector::make(nullptr, {limits.sequences_max});
  t.page_table_ = Matrix::make(nullptr, {limits.sequences_max, limits.pages_max});
  t.logits_rows_ = Vector::make(nullptr, {limits.rows_max});
  t.storage_ = TANDEM_TRY(device.allocate(bytes_needed(limits)));
  auto* at = t.storage_.as<int32_t>();
  t.tokens_ = carve(at, t.tokens_);
  t.positions_ = carve(at, t.positions_);
  t.slots_ = carve(at, t.slots_);
  t.query_start_ = carve(at, t.query_start_);
  t.kv_tokens_ = carve(at, t.kv_tokens_);
  t.page_table_ = carve(at, t.page_table_);
  t.logits_rows_ = carve(at, t.logits_rows_);
  t.clear();
  return t;
}

void StepTensors::clear() {
  tokens_count_ = sequences_count_ = rows_count_ = 0;
  query_start_[0] = 0;
}

void StepTensors::append(std::span<const TokenId> tokens, uint32_t start,
                         std::span<const PageId> pages, uint32_t logits_count) {
  const auto end = static_cast<int64_t>(tokens.size());
  const int64_t page_tokens = limits_.page_tokens;
  TANDEM_CHECK(start < end, "a chunk has tokens");
  TANDEM_CHECK(logits_count <= end - start, "logits come from computed tokens");
  TANDEM_CHECK(sequences_count_ < limits_.sequences_max, "more sequences than a step holds");
  TANDEM_CHECK(tokens_count_ + end - start <= limits_.tokens_max, "more tokens than a step holds");
  TANDEM_CHECK(rows_count_ + logits_count <= limits_.rows_max, "more logits than a step holds");
  const int64_t pages_used = (end + page_tokens - 1) / page_tokens;
  TANDEM_CHECK(pages_used <= static_cast<int64_t>(pages.size()), "pages cover the chunk");
  TANDEM_CHECK(pages_used <= limits_.pages_max, "pages fit the page table");

  for (int64_t position = start; position < end; ++position) {
    const int64_t page = pages[static_cast<size_t>(position / page_tokens)].value;
    tokens_[tokens_count_] = tokens[static_cast<size_t>(position)];
    positions_[tokens_count_] = static_cast<int32_t>(position);
    slots_[tokens_count_] = static_cast<int32_t>(page * page_tokens + position % page_tokens);
    if (position >= end - logits_count) {
      logits_rows_[rows_count_++] = static_cast<int32_t>(tokens_count_);
    }
    ++tokens_count_;
  }
  int32_t* row = page_table_.row(sequences_count_);
  for (int64_t i = 0; i < pages_used; ++i)
    row[i] = static_cast<int32_t>(pages[static_cast<size_t>(i)].value);
  kv_tokens_[sequences_count_] = static_cast<int32_t>(end);
  query_start_[++sequences_count_] = static_cast<int32_t>(tokens_count_);
}

model::StepInput StepTensors::input() const {
  return {.tokens = tokens_.head(tokens_count_),
          .positions = positions_.head(tokens_count_),
          .slots = slots_.head(tokens_count_),
          .query_start = query_start_.head(sequences_count_ + 1),
          .kv_tokens = kv_tokens_.head(sequences_count_),
          .page_table = page_table_.head(sequences_count_),
          .logits_rows = logits_rows_.head(rows_count_)};
}

}  // namespace tandem::engine
