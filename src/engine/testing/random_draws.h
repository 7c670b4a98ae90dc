#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/limits.h"
#include "engine/request.h"
#include "engine/testing/hash_outcome.h"

namespace tandem::engine::testing {

/// What random histories of an engine over the model of hashes are made of.
class RandomDraws {
 public:
  explicit RandomDraws(uint32_t seed) : random_(seed) {}

  /// Below `end`.
  uint32_t number(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  bool chance(uint32_t one_in) { return number(one_in) == 0; }

  std::vector<TokenId> tokens(size_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(number(kVocabulary));
    return tokens;
  }

  /// Half of them tight: few tokens a step, hardly more pages than one request needs.
  Limits limits(uint32_t length_max) {
    Limits limits{.model_length_max = length_max, .sequences_max = 1 + number(8)};
    limits.step_tokens_max = limits.sequences_max + number(chance(2) ? 4 : 60);
    limits.page_tokens = 1 + number(9);
    const uint32_t least = (length_max + limits.page_tokens - 1) / limits.page_tokens;
    limits.pages_total = least + number(chance(2) ? 3 : 4 * least + 1);
    limits.vocabulary_size = limits.tokenizer_size = kVocabulary;
    limits.prefix_caching = !chance(3);
    return limits;
  }

  /// 1 to length_max - 1 tokens; half of them begin like others do.
  std::vector<TokenId> prompt(uint32_t length_max) {
    while (families_.size() < 3) families_.push_back(tokens(length_max));
    const uint32_t length = 1 + number(length_max - 1);
    const uint32_t shared = chance(2) ? number(length + 1) : 0;
    const auto& family = families_[number(3)];
    std::vector<TokenId> prompt(family.begin(), family.begin() + shared);
    for (TokenId token : tokens(length - shared)) prompt.push_back(token);
    return prompt;
  }

 private:
  std::mt19937 random_;
  std::vector<std::vector<TokenId>> families_;  // beginnings that prompts share
};

}  // namespace tandem::engine::testing
