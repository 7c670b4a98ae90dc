// Contract   this rank's pairs (token, expert) in order of expert, see expert_select.h
// Work       one counting sort of tokens * k small integers, on one thread
// Reference  the pairs in expert order, expert_combine_test.cc
#include <algorithm>

#include "comm/expert_select/expert_select.h"
#include "cpu/cpu_device.h"

namespace tandem::comm {

Result<void> expert_select_cpu(Stream& stream, const ExpertSelectArgs& args) {
  const auto experts = static_cast<int32_t>(args.expert_offsets.size() - 1);
  const int64_t tokens = args.expert_ids.shape[0];
  const int64_t k = args.expert_ids.shape[1];
  const auto local = [&](int64_t t, int64_t j) {
    return args.expert_ids.row(t)[j] - args.first_expert;
  };
  const auto is_local = [&](int32_t expert) { return expert >= 0 && expert < experts; };

  int32_t* offsets = args.expert_offsets.data;
  std::fill_n(offsets, experts + 1, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      if (is_local(local(t, j))) ++offsets[local(t, j) + 1];
    }
  }
  for (int32_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];

  auto* next = reinterpret_cast<int32_t*>(
      cpu::cpu_stream(stream).scratch(static_cast<size_t>(experts) * sizeof(int32_t)));
  std::copy_n(offsets, experts, next);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const int32_t expert = local(t, j);
      args.row_of.row(t)[j] = is_local(expert) ? next[expert]++ : -1;
      if (is_local(expert)) args.row_source[args.row_of.row(t)[j]] = static_cast<int32_t>(t);
    }
  }
  return {};
}

}  // namespace tandem::comm
