// Goal: a prompt that one group computes and another goes on with has the bits of one process:
// tokens, logprobs and every row of logits, for any sharding and pages of either side (contracts:
// numerics, hand-off; field cases A8, A10, A13, A18, A31).
// Method: two groups of the trained tiny-moe in one process. Pages go from one to the other as the
// plan says, by memcpy between the ranks' own pools, and each slice is proved by kv_digest on both
// sides. Eight requests at once, of lengths around pages; the same ones alone are the reference.
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "engine/engine_core.h"
#include "engine/testing/courier.h"
#include "engine/testing/row_watcher.h"
#include "engine/testing/tiny_group.h"
#include "kv/sidecar.h"
#include "ops/kv_digest/kv_digest.h"

namespace tandem::engine {
namespace {

using testing::Answer;
using testing::Collector;
using testing::Courier;
using testing::Rows;
using testing::RowWatcher;
using testing::TinyGroup;

constexpr uint32_t kLengthMax = 320;
constexpr uint32_t kTokensMax = 6;
constexpr DType kCompute = DType::kBF16;

/// How one side is built.
struct Side {
  int tensor_parallel;
  uint32_t page_tokens;
};

Limits limits_of(const Side& side) {
  return {.model_length_max = kLengthMax,
          .sequences_max = 8,
          .step_tokens_max = 75,
          .page_tokens = side.page_tokens,
          .pages_total = 8 * (kLengthMax / side.page_tokens + 1),
          .vocabulary_size = testing::kTinyMoeVocabulary,
          .tokenizer_size = testing::kTinyMoeVocabulary,
          .leases_max = 16};
}

/// Two of them begin alike, so that either side has something cached.
std::vector<Request> requests() {
  std::mt19937 random(11);
  std::vector<Request> result;
  constexpr size_t kLengths[] = {1, 2, 31, 32, 33, 64, 150, 300};
  std::vector<TokenId> text(kLengthMax);
  for (TokenId& token : text) token = static_cast<TokenId>(random() % 4000);
  for (uint64_t id = 0; id < std::size(kLengths); ++id) {
    Request request{.id = {id}, .tokens_max = kTokensMax};
    request.prompt.assign(text.begin(), text.begin() + static_cast<ptrdiff_t>(kLengths[id]));
    if (id % 2 == 0) std::ranges::reverse(request.prompt);
    request.sampling = {.temperature = id % 3 == 0 ? 0.0f : 0.8f, .seed = id, .logprobs_count = 5};
    result.push_back(std::move(request));
  }
  return result;
}

/// A group with its engine.
struct Worker {
  Worker(const Side& side, const Rows* alone, Courier* courier)
      : limits(limits_of(side)),
        group(side.tensor_parallel, limits, kCompute),
        watcher(group.runner(), group.rank(0), alone, UINT64_MAX),
        core(EngineCore::create({.limits = limits,
                                 .now_us = [] { return int64_t{1}; },
                                 .source = courier,
                                 .observer = courier},
                                watcher)
                 .value()) {}

  Courier::End end() {
    return {
        .engine = core.get(),
        .layout = group.rank(0).kv_layout(),
        .pool = [this](uint32_t rank,
                       uint32_t pool) { return static_cast<std::byte*>(tensor(rank, pool).data); },
        .pools_count = static_cast<uint32_t>(2 * group.rank(0).kv_pools().size())};
  }
  const AnyTensor& tensor(uint32_t rank, uint32_t pool) {
    const ops::KvPool& of_layer = group.rank(rank).kv_pools()[pool / 2];
    return pool % 2 == 0 ? of_layer.k : of_layer.v;
  }
  /// After a step all ranks have written all of its layers.
  void expect_progress() {
    const uint64_t layers = group.rank(0).kv_pools().size();
    const uint64_t steps = core->counters().steps;
    for (uint32_t rank = 0; steps > 0 && rank < group.ranks_count(); ++rank) {
      EXPECT_EQ(group.rank(rank).layer_progress(), (steps + 1) * layers - 1) << "rank " << rank;
    }
  }
  /// What a sidecar proves, from this side's pages.
  std::vector<uint64_t> digests(uint32_t rank, uint32_t pool, std::span<const PageId> pages,
                                const kv::TransferPlan& plan, uint32_t first_head,
                                uint32_t heads_count, uint32_t slice_tokens) {
    std::vector<int32_t> page_list;
    for (PageId page : pages) page_list.push_back(static_cast<int32_t>(page.value));
    std::vector<uint64_t> result(plan.slices_count());
    ops::kv_digest(group.rank(rank).stream(),
                   {.pool = tensor(rank, pool),
                    .pages = TensorView<const int32_t, 1>::make(
                        page_list.data(), {static_cast<int64_t>(page_list.size())}),
                    .first_head = first_head,
                    .heads_count = heads_count,
                    .first_token = plan.tokens().first,
                    .end_token = plan.tokens().end,
                    .slice_tokens = slice_tokens,
                    .digests = TensorView<uint64_t, 1>::make(
                        result.data(), {static_cast<int64_t>(result.size())})})
        .value();
    return result;
  }

  const Limits limits;
  TinyGroup group;
  RowWatcher watcher;
  std::unique_ptr<EngineCore> core;
};

struct Reference {
  std::map<uint64_t, Answer> answers;
  Rows rows;
};

const Reference& alone() {
  static const Reference reference = [] {
    Worker worker({1, 16}, nullptr, nullptr);
    Collector sink;
    for (Request& request : requests()) {
      worker.core->accept(std::move(request), sink, 0);
      while (worker.core->step()) continue;
    }
    return Reference{std::move(sink.answers), std::move(worker.watcher.rows)};
  }();
  return reference;
}

/// Each slice proved as a target would prove it.
void expect_proof(Worker& source, Worker& target, const kv::TransferPlan& plan,
                  const kv::TransferPlan::Pages& pages) {
  const uint32_t slice_tokens = target.limits.page_tokens;
  for (const kv::PlanLink& link : plan.links()) {
    for (uint32_t pool = 0; pool < 2 * plan.layers(); ++pool) {
      const uint32_t heads = link.heads.count();
      const auto sent = source.digests(link.source_rank, pool, pages.source, plan, link.source_head,
                                       heads, slice_tokens);
      const auto found = target.digests(link.target_rank, pool, pages.target, plan,
                                        link.target_head, heads, slice_tokens);
      for (uint32_t slice = 0; slice < plan.slices_count(); ++slice) {
        const uint32_t tokens = plan.slice_tokens(slice).count();
        EXPECT_TRUE(kv::check_record({.epoch = 1, .digest = sent[slice], .tokens = tokens},
                                     {.epoch = 1, .digest = found[slice], .tokens = tokens},
                                     {.source_rank = link.source_rank,
                                      .layer = pool / 2,
                                      .is_value = pool % 2 == 1,
                                      .slice = slice})
                        .ok());
      }
    }
  }
}

class HandoffIdentity : public ::testing::TestWithParam<std::tuple<Side, Side>> {};

TEST_P(HandoffIdentity, HasTheBitsOfOneProcess) {
  const Reference& reference = alone();
  const auto& [source_side, target_side] = GetParam();
  std::mt19937 random(7);
  Courier courier([&](uint32_t end) { return static_cast<uint32_t>(random() % end); });
  Worker source(source_side, nullptr, &courier);
  Worker target(target_side, &reference.rows, &courier);
  courier.connect(source.end(), target.end());
  courier.inspect = [&](const kv::TransferPlan& plan, const kv::TransferPlan::Pages& pages) {
    expect_proof(source, target, plan, pages);
  };
  Collector sink;
  for (Request& request : requests()) {
    request.kv_way = KvWay::kImport;
    target.core->accept(std::move(request), sink, 0);
  }
  const size_t count = requests().size();
  for (int turns = 0; sink.finished < count || !courier.is_idle(); ++turns) {
    ASSERT_LT(turns, 10'000) << "no progress";
    source.core->step();
    source.expect_progress();
    courier.turn();
    target.core->step();
  }
  EXPECT_EQ(sink.answers, reference.answers);
  EXPECT_GE(target.watcher.rows_compared, count * kTokensMax);
  EXPECT_EQ(courier.arrivals, count - 1) << "a prompt of one token never leaves the target";
  EXPECT_EQ(target.core->counters().prompt_tokens, count) << "the last token of each, no more";
  EXPECT_GT(target.core->counters().imported_tokens, 500u);
  for (Worker* worker : {&source, &target}) {
    worker->core->step();
    EXPECT_EQ(worker->core->cache_stats().pages_used, 0u);
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Side, Side>>& info) {
  const auto& [source, target] = info.param;
  const auto name = [](const Side& side) {
    return "Tp" + std::to_string(side.tensor_parallel) + "Pages" + std::to_string(side.page_tokens);
  };
  return name(source) + "To" + name(target);
}

INSTANTIATE_TEST_SUITE_P(OneRank, HandoffIdentity,
                         ::testing::Values(std::tuple(Side{1, 16}, Side{1, 16}),
                                           std::tuple(Side{1, 16}, Side{1, 32}),
                                           std::tuple(Side{1, 32}, Side{1, 16}),
                                           std::tuple(Side{1, 48}, Side{1, 64})),
                         name_of);
// All pairs of degrees; eight ranks hold four KV heads twice.
INSTANTIATE_TEST_SUITE_P(
    Ranks, HandoffIdentity,
    ::testing::Combine(::testing::Values(Side{1, 16}, Side{2, 32}, Side{4, 48}, Side{8, 16}),
                       ::testing::Values(Side{1, 32}, Side{2, 16}, Side{4, 64}, Side{8, 16})),
    name_of);

}  // namespace
}  // namespace tandem::engine
