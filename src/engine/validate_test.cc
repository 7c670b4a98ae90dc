// Goal: limits that a step cannot be built for are refused, and their error names the flag.
// Method: limits that pass, then each bound from both sides.
#include "engine/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::engine {
namespace {

using ::testing::HasSubstr;

constexpr Limits kGood{.model_length_max = 64,
                       .sequences_max = 4,
                       .step_tokens_max = 8,
                       .page_tokens = 16,
                       .pages_total = 4};

std::string error_of(const Limits& limits) {
  const Result<void> valid = validate(limits);
  return valid.ok() ? "" : valid.error().what;
}

TEST(ValidateLimits, EverySlotOfTheCacheIsAnInt32) {
  Limits limits = kGood;
  limits.pages_total = 1u << 27;  // of 16 tokens: the last slot is 2^31 - 1
  EXPECT_EQ(error_of(limits), "");
  ++limits.pages_total;
  EXPECT_THAT(error_of(limits), HasSubstr("--kv-cache-tokens"));
}

TEST(ValidateLimits, EachBoundNamesItsFlag) {
  EXPECT_EQ(error_of(kGood), "");
  Limits limits = kGood;
  limits.model_length_max = 1;
  EXPECT_THAT(error_of(limits), HasSubstr("--max-model-len"));
  limits = kGood;
  limits.model_length_max = 65;
  EXPECT_THAT(error_of(limits), HasSubstr("raise --kv-cache-tokens"));
  limits = kGood;
  limits.sequences_max = 0;
  EXPECT_THAT(error_of(limits), HasSubstr("--max-num-seqs must be 1 or more"));
  limits.sequences_max = 9;
  EXPECT_THAT(error_of(limits), HasSubstr("--max-num-batched-tokens 8 is below --max-num-seqs 9"));
  limits = kGood;
  limits.step_tokens_max = (1u << 20) + 1;
  EXPECT_THAT(error_of(limits), HasSubstr("--max-num-batched-tokens 1048577"));
  for (const uint32_t page_tokens : {0u, 4097u}) {
    limits = kGood;
    limits.page_tokens = page_tokens;
    EXPECT_THAT(error_of(limits), HasSubstr("--block-size"));
  }
}

}  // namespace
}  // namespace tandem::engine
