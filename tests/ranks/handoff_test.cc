// Goal: prompts that one rank set computes and another goes on with have the answers of one rank,
// to the bit of every logprob, layer by layer while both run at their own pace.
// Method: two sets in one process, prefill over two ranks and decode in two groups, and a courier
// with memcpy for a network (courier.h); the answers of one rank are the reference.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/ranks/courier.h"
#include "tests/ranks/serve_requests.h"
#include "tests/ranks/test_models.h"

namespace tandem::ranks {
namespace {

engine::RankSet::Options lending(const ScoredModel& model, const model::Layout& layout,
                                 uint32_t page_tokens) {
  engine::RankSet::Options options = set_options(model, layout);
  engine::Limits& limits = options.limits;
  limits.pages_total = limits.pages_total * limits.page_tokens / page_tokens;
  limits.page_tokens = page_tokens;
  limits.leases_max = 16;
  limits.quarantine_pages_max = 8;
  return options;
}

/// It hears of deliveries a moment later.
void expect_all_given_back(engine::RankSet& set) {
  for (int i = 0; i < 6000; ++i) {
    if (set.client()->status().pages_used == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "pages are still held";
}

void expect_handed_off(const ScoredModel& model, const model::Layout& prefill,
                       const model::Layout& decode, uint64_t seed) {
  auto requests = mixed_requests(24, model.config.vocab_size, seed);
  const std::vector<Answer> expected =
      serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, seed);
  for (engine::Request& request : requests) request.kv_way = engine::KvWay::kImport;

  std::optional<Courier> courier(std::in_place, decode.data_parallel);
  auto source_options = lending(model, prefill, 32);
  source_options.ports = [&](int group) {
    EXPECT_EQ(group, 0);
    return engine::RankSet::GroupPorts{.observer = &*courier};
  };
  auto target_options = lending(model, decode, 16);
  target_options.ports = [&](int group) {
    return engine::RankSet::GroupPorts{.source = courier->source_of(group)};
  };
  const ThreadRanks source = ThreadRanks::start(source_options);
  const ThreadRanks target = ThreadRanks::start(target_options);
  ASSERT_EQ(source.set->groups().size(), static_cast<size_t>(prefill.data_parallel));
  ASSERT_EQ(target.set->groups().size(), static_cast<size_t>(decode.data_parallel));
  for (const auto& group : target.set->groups()) {
    EXPECT_EQ(group.ranks.size(), static_cast<size_t>(decode.tensor_parallel));
  }
  courier->connect(*source.set, *target.set);
  for (int burst = 0; burst < 2; ++burst) {
    expect_same(serve_all(*target.set->client(), requests, {}, seed), expected, {});
  }
  EXPECT_GT(courier->arrivals(), 20u);
  EXPECT_GT(target.set->client()->status().imported_tokens, 500u);
  expect_all_given_back(*source.set);
  expect_all_given_back(*target.set);
  courier.reset();
}

TEST(RankSetHandoff, FromTensorParallelToDataParallel) {
  expect_handed_off(tiny_moe(DType::kBF16), {.tensor_parallel = 2}, {.data_parallel = 2}, 21);
}

TEST(RankSetHandoff, FromOneRankToTensorParallelInsideDataParallel) {
  expect_handed_off(random_model({}, DType::kF32), {}, {.tensor_parallel = 2, .data_parallel = 2},
                    22);
}

}  // namespace
}  // namespace tandem::ranks
