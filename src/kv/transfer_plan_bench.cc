// Goal: what planning costs a request and what naming all of its copies costs.
// Method: 94 layers, 4 heads of 128 in bf16, from 4 ranks to 1; counts without copies (the target),
// and the copies of one pool, which are the same for every layer and K|V (the source).
#include <benchmark/benchmark.h>

#include "kv/transfer_plan.h"

namespace tandem::kv {
namespace {

KvLayout layout_of(uint32_t ranks, uint32_t page_tokens) {
  return {.layers = 94,
          .kv_heads = 4,
          .head_dim = 128,
          .page_tokens = page_tokens,
          .pages_total = 1u << 16,
          .rank_heads = KvLayout::even_heads(4, ranks)};
}

void plan_and_count(benchmark::State& state) {
  const KvLayout source = layout_of(4, 16);
  const KvLayout target = layout_of(1, 32);
  const auto tokens = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    const TransferPlan plan = TransferPlan::create(source, target, {.tokens = {0, tokens}}).value();
    benchmark::DoNotOptimize(plan.arrivals(0).total());
  }
}
BENCHMARK(plan_and_count)->Arg(4096)->Arg(131072);

void copies_of_a_pool(benchmark::State& state) {
  const auto tokens = static_cast<uint32_t>(state.range(0));
  const TransferPlan plan =
      TransferPlan::create(layout_of(4, 16), layout_of(1, 32), {.tokens = {0, tokens}}).value();
  std::vector<PageId> source(plan.source_pages().count());
  std::vector<PageId> target(plan.target_pages().count());
  for (uint32_t i = 0; i < source.size(); ++i) source[i] = PageId{i};
  for (uint32_t i = 0; i < target.size(); ++i) target[i] = PageId{i};
  uint64_t copies = 0;
  for (auto _ : state) {
    uint64_t sum = 0;
    for (const PlanLink& link : plan.links()) {
      for (uint32_t slice = 0; slice < plan.slices_count(); ++slice) {
        plan.for_each_copy(link, slice, {source, target}, [&](const PageCopy& copy) {
          sum += copy.source_offset ^ copy.target_offset;
          ++copies;
        });
      }
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["copies"] =
      benchmark::Counter(static_cast<double>(copies), benchmark::Counter::kAvgIterations);
}
BENCHMARK(copies_of_a_pool)->Arg(4096)->Arg(131072);

}  // namespace
}  // namespace tandem::kv
