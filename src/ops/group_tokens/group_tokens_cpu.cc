// Contract   the pairs (token, expert) in order of expert, see group_tokens.h
// Shapes     any tokens, k and experts
// Work       one counting sort of tokens * k small integers, on one thread
// Roof       none that shows: a few integers per token, in L1
// Plan       count per expert, add up to offsets, then put each pair in its place, tokens ascending
// Measured   not alone yet; its part of a step: tandem bench engine --ops
// Reference  group_tokens_test.cc
#include <algorithm>

#include "cpu/cpu_device.h"
#include "ops/group_tokens/group_tokens.h"

namespace tandem::ops {

Result<void> group_tokens_cpu(Stream& stream, const GroupTokensArgs& args) {
  const int64_t experts = args.expert_offsets.shape[0] - 1;
  const int64_t tokens = args.expert_ids.shape[0];
  const int64_t k = args.expert_ids.shape[1];
  int32_t* offsets = args.expert_offsets.data;
  std::fill_n(offsets, experts + 1, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) ++offsets[args.expert_ids.row(t)[j] + 1];
  }
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];

  auto* next = reinterpret_cast<int32_t*>(
      cpu::cpu_stream(stream).scratch(static_cast<size_t>(experts) * sizeof(int32_t)));
  std::copy_n(offsets, experts, next);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const int32_t row = next[args.expert_ids.row(t)[j]]++;
      args.row_source[row] = static_cast<int32_t>(t);
      args.row_of.row(t)[j] = row;
    }
  }
  return {};
}

}  // namespace tandem::ops
