// Goal: ranks that are processes give the bits of one rank, as ranks that are threads do. Method:
// this program forks processes of one or two ranks, while it has no other thread; each compares its
// own logits and tells its parent.
#include <gtest/gtest.h>

#include <thread>

#include "comm/process_group.h"
#include "comm/testing/rank_process.h"
#include "tests/ranks/run_layout.h"
#include "tests/ranks/test_models.h"

namespace tandem::ranks {
namespace {

/// An empty text when the rank's logits are those of one rank.
std::string run_rank(const ScoredModel& model, const model::Layout& layout, int rank,
                     const io::Endpoint& address, const Scored& expected) {
  auto group = comm::ProcessGroup::join({.address = address,
                                         .rank = rank,
                                         .ranks_count = layout.ranks_count(),
                                         .heap_bytes = RankScorer::heap_bytes(model, layout)});
  if (!group.ok()) return group.error().what;
  const auto compared = compare_rank(model, layout, rank, &(*group)->heap(), expected);
  if (compared.ok()) return "";
  (*group)->fail(compared.error().what);
  return compared.error().what;
}

void expect_bits_of_one_rank(const model::Layout& layout, int processes_count) {
  SCOPED_TRACE("TP" + std::to_string(layout.tensor_parallel) + " x DP" +
               std::to_string(layout.data_parallel) + " in " + std::to_string(processes_count));
  const io::Endpoint address = comm::free_endpoint();
  const int ranks = layout.ranks_count() / processes_count;
  std::vector<comm::RankProcess> processes;
  for (int process = 0; process < processes_count; ++process) {
    processes.emplace_back([&] {
      const ScoredModel model = tiny_moe(DType::kBF16);
      const Scored expected =
          score_on_one_rank(model, random_texts({1, 50, 7, 97, 23}, model.config.vocab_size, 5));
      std::vector<std::string> told(static_cast<size_t>(ranks));
      std::vector<std::thread> threads;
      for (int i = 0; i < ranks; ++i) {
        threads.emplace_back([&, i] {
          told[static_cast<size_t>(i)] =
              run_rank(model, layout, process * ranks + i, address, expected);
        });
      }
      for (std::thread& thread : threads) thread.join();
      std::string all;
      for (const std::string& one : told) all += one;
      return all;
    });
  }
  for (comm::RankProcess& process : processes) EXPECT_EQ(process.wait(), "");
}

TEST(Processes, Two) {
  expect_bits_of_one_rank({.tensor_parallel = 2}, 2);
  expect_bits_of_one_rank({.data_parallel = 2}, 2);
}

TEST(Processes, Four) {
  expect_bits_of_one_rank({.tensor_parallel = 4}, 4);
  expect_bits_of_one_rank({.data_parallel = 4}, 4);
  expect_bits_of_one_rank({.tensor_parallel = 2, .data_parallel = 2}, 4);
}

TEST(Processes, TwoOfTwoRanksEach) {
  expect_bits_of_one_rank({.tensor_parallel = 4}, 2);
  expect_bits_of_one_rank({.tensor_parallel = 2, .data_parallel = 2}, 2);
}

TEST(Processes, ExpertsThatChangeTheirRankAtEveryStep) {
  expect_bits_of_one_rank({.data_parallel = 4, .redundant_experts = 4, .rebalances_experts = true},
                          4);
  expect_bits_of_one_rank({.tensor_parallel = 2,
                           .data_parallel = 2,
                           .redundant_experts = 4,
                           .rebalances_experts = true},
                          2);
}

}  // namespace
}  // namespace tandem::ranks
