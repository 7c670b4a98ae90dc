// Goal: no bytes in the place of a step make a follower read outside of them, or use a token, slot,
// page or row that it does not have. Method: the input is decoded as a step; of what is accepted,
// every element of every tensor is compared with the limits, and the address sanitizer watches.
// Start it with fuzz_corpus/step_message.
#include <cstdlib>
#include <cstring>

#include "engine/step_message.h"

namespace {

using namespace tandem;

constexpr engine::Limits kLimits{.model_length_max = 20,
                                 .sequences_max = 3,
                                 .step_tokens_max = 20,
                                 .page_tokens = 4,
                                 .pages_total = 12,
                                 .vocabulary_size = 50};

void expect_below(int64_t end, const int32_t* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (data[i] < 0 || data[i] >= end) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // In memory of exactly that size, aligned as the heap of a rank is.
  std::vector<int32_t> words((size + sizeof(int32_t) - 1) / sizeof(int32_t));
  if (size > 0) std::memcpy(words.data(), data, size);
  const engine::StepMessage message(kLimits);
  const auto step = message.decode(std::as_bytes(std::span(words)).first(size));
  if (!step.ok()) return step.error().what.empty() ? std::abort(), 0 : 0;
  const model::StepInput& input = step->input;
  const int64_t tokens = input.tokens.size();
  const int64_t sequences = input.kv_tokens.size();
  if (tokens > kLimits.step_tokens_max || sequences > kLimits.sequences_max ||
      input.logits_rows.size() > kLimits.sequences_max ||
      input.query_start.size() != sequences + 1 || input.page_table.shape[0] != sequences) {
    std::abort();
  }
  expect_below(kLimits.vocabulary_size, input.tokens.data, tokens);
  expect_below(kLimits.model_length_max, input.positions.data, tokens);
  expect_below(int64_t{kLimits.pages_total} * kLimits.page_tokens, input.slots.data, tokens);
  expect_below(tokens + 1, input.query_start.data, sequences + 1);
  expect_below(int64_t{kLimits.model_length_max} + 1, input.kv_tokens.data, sequences);
  expect_below(tokens, input.logits_rows.data, input.logits_rows.size());
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t pages = (input.kv_tokens[s] + kLimits.page_tokens - 1) / kLimits.page_tokens;
    if (pages > input.page_table.shape[1]) std::abort();
    expect_below(kLimits.pages_total, input.page_table.row(s), pages);
  }
  return 0;
}
