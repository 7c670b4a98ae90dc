// Contract   top-k experts of every token and their weights, see route.h
// Shapes     any tokens and experts, k up to the experts
// Work       k passes over the experts of a token: tens of comparisons beside a product of
//            hidden * experts
// Roof       none that shows: a row of logits lies in L1
// Plan       a task per token: k scans for the largest, ids sorted, softmax over all experts
// Measured   not alone yet; its part of a step: tandem bench engine --ops
// Reference  route_test.cc
#include <algorithm>
#include <cmath>

#include "cpu/cpu_device.h"
#include "cpu/vector.h"
#include "ops/route/route.h"

namespace tandem::ops {
namespace {

/// The experts of one token in ascending id; distinct ones also when comparisons meet a NaN.
void choose(const float* logits, int64_t experts, int32_t* ids, int64_t k) {
  for (int64_t j = 0; j < k; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts; ++e) {
      if (std::find(ids, ids + j, e) != ids + j) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    ids[j] = best;
  }
  std::sort(ids, ids + k);
}

}  // namespace

Result<void> route_cpu(Stream& stream_any, const RouteArgs& args) {
  cpu::CpuStream& stream = cpu::cpu_stream(stream_any);
  const int64_t experts = args.logits.shape[1];
  const int64_t k = args.expert_ids.shape[1];
  auto* scratch = reinterpret_cast<float*>(
      stream.scratch(sizeof(float) * static_cast<size_t>(stream.team().threads_count() * experts)));

  stream.team().parallel_for(args.logits.shape[0], [&](int64_t t, int worker) {
    const float* logits = args.logits.row(t);
    int32_t* ids = args.expert_ids.row(t);
    float* weights = args.weights.row(t);
    choose(logits, experts, ids, k);
    float* probabilities = scratch + worker * experts;
    const float sum =
        cpu::exp_shifted(probabilities, logits, cpu::max_value(logits, experts), experts);
    float chosen = 0.0f;
    for (int64_t j = 0; j < k; ++j) chosen += probabilities[ids[j]];
    // A sum that is NaN spoils all weights, also where the bad expert was not chosen.
    const float divisor = args.renormalise && !std::isnan(sum) ? chosen : sum;
    for (int64_t j = 0; j < k; ++j) weights[j] = probabilities[ids[j]] / divisor;
  });
  return {};
}

}  // namespace tandem::ops
