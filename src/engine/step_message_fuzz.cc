// Goal: no bytes in the place of a step make a follower read outside of them or of its limits.
// Method: the input is decoded as a step; of what is accepted, every element of every tensor is
// read, which the address sanitizer watches. Start it with fuzz_corpus/step_message.
#include <cstdlib>
#include <cstring>

#include "engine/step_message.h"

namespace {

using namespace tandem;

constexpr engine::StepTensors::Limits kLimits{
    .tokens_max = 20, .sequences_max = 3, .rows_max = 4, .pages_max = 5, .page_tokens = 4};

int64_t sum_of(const int32_t* data, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += data[i];
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // In memory of exactly that size, aligned as the heap of a rank is.
  std::vector<int32_t> words((size + sizeof(int32_t) - 1) / sizeof(int32_t));
  if (size > 0) std::memcpy(words.data(), data, size);
  const engine::StepMessage message(kLimits);
  const auto step = message.decode(std::as_bytes(std::span(words)).first(size));
  if (!step.ok()) return step.error().what.empty() ? std::abort(), 0 : 0;
  if (step->tokens.size() > kLimits.tokens_max || step->logits_rows.size() > kLimits.rows_max ||
      step->kv_tokens.size() > kLimits.sequences_max ||
      step->query_start.size() != step->kv_tokens.size() + 1) {
    std::abort();
  }
  volatile int64_t sum = 0;
  for (const auto& vector : {step->tokens, step->positions, step->slots, step->query_start,
                             step->kv_tokens, step->logits_rows}) {
    sum = sum + sum_of(vector.data, vector.size());
  }
  sum = sum + sum_of(step->page_table.data, step->page_table.size());
  return 0;
}
