// Goal: layout flags that contradict each other or the model are refused by name, and what a layout
// does unasked is told.
// Method: made-up models; flags that fit, then one at a time that does not.
#include "apps/run_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

model::ModelConfig config_with(int64_t heads, int64_t experts) {
  model::ModelConfig config{.hidden_size = 64,
                            .layers_count = 1,
                            .heads = heads,
                            .kv_heads = 8,
                            .head_dim = 8,
                            .intermediate_size = 1024,
                            .layer_is_moe = {experts > 0},
                            .vocab_size = 256};
  if (experts > 0) {
    config.moe_intermediate_size = 128;
    config.experts_count = experts;
    config.experts_per_token = 2;
  }
  return config;
}

std::string refusal(const LayoutOptions& options, int64_t experts = 8) {
  const auto checked = check_layout(options, config_with(16, experts));
  return checked.ok() ? "" : checked.error().what;
}

std::vector<std::string> notices(const LayoutOptions& options, int64_t heads, int64_t experts) {
  const auto shard = model::Shard::create(config_with(heads, experts), options.layout, 0);
  return layout_notices(options, shard.value());
}

TEST(Layout, ExpertParallelSizeIsAllRanksOrNothing) {
  const model::Layout four{.tensor_parallel = 2, .data_parallel = 2};
  EXPECT_EQ(refusal({.layout = four}), "");
  EXPECT_EQ(refusal({.layout = four, .expert_parallel_size = 4}), "");
  for (const int wrong : {1, 2, 3, 8}) {
    EXPECT_THAT(refusal({.layout = four, .expert_parallel_size = wrong}),
                StartsWith("--expert-parallel-size " + std::to_string(wrong)));
  }
}

TEST(Layout, ExpertsMustExistToBeSpread) {
  EXPECT_THAT(refusal({.expert_parallel = true}, 0), HasSubstr("the model has no experts"));
  EXPECT_THAT(refusal({.layout = {.tensor_parallel = 2}, .expert_parallel_size = 2}, 0),
              HasSubstr("the model has no experts"));
}

TEST(Layout, ProcessesShareTheRanksEvenly) {
  const model::Layout three{.data_parallel = 3};
  EXPECT_THAT(refusal({.layout = three, .nodes_count = 2}), StartsWith("--nnodes 2"));
  EXPECT_THAT(refusal({.layout = three, .nodes_count = 3, .node_rank = 3}),
              StartsWith("--node-rank 3"));
  EXPECT_THAT(refusal({.layout = three, .nodes_count = 3}), HasSubstr("--dist-init-addr"));
  EXPECT_THAT(refusal({.layout = three, .nodes_count = 3, .address = "127.0.0.1:0"}),
              HasSubstr("port 0"));
  EXPECT_EQ(refusal({.layout = three, .nodes_count = 3, .address = "127.0.0.1:9"}), "");
}

TEST(Layout, OneProcessHasNobodyToMeet) {
  EXPECT_THAT(refusal({.layout = {.data_parallel = 2}, .address = "127.0.0.1:9"}),
              StartsWith("--dist-init-addr 127.0.0.1:9: without --nnodes"));
}

TEST(Layout, AProcessHasANumberAmongSeveral) {
  const auto refusal_of = [](std::vector<std::string> reversed_arguments) -> std::string {
    LayoutOptions options;
    CLI::App verb;
    add_layout_flags(verb, options);
    try {
      verb.parse(std::move(reversed_arguments));
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal_of({"0", "--node-rank"}), HasSubstr("--node-rank requires --nnodes"));
  const std::vector<std::string> two = {"a:1", "--dist-init-addr", "2", "--dp", "2", "--nnodes"};
  const auto with_number = [&](const char* number) {
    std::vector<std::string> reversed = {number, "--node-rank"};
    reversed.insert(reversed.end(), two.begin(), two.end());
    return refusal_of(reversed);
  };
  EXPECT_EQ(with_number("1"), "");
  EXPECT_THAT(with_number("2"), HasSubstr("use 0 to 1")) << "known from the command line alone";
}

TEST(Layout, AProcessServesClientsIfItLeadsAGroup) {
  const model::Layout layout{.tensor_parallel = 2, .data_parallel = 2};
  const auto leads = [&](int nodes, int node) {
    return LayoutOptions{.layout = layout, .nodes_count = nodes, .node_rank = node}.leads_here();
  };
  EXPECT_TRUE(leads(1, 0));
  EXPECT_TRUE(leads(2, 0) && leads(2, 1));
  EXPECT_TRUE(leads(4, 0) && leads(4, 2));
  EXPECT_FALSE(leads(4, 1) || leads(4, 3));
}

TEST(Layout, WithNothingUnexpectedSaysNothing) {
  EXPECT_THAT(notices({}, 16, 8), IsEmpty());
  EXPECT_THAT(notices({.layout = {.tensor_parallel = 2}}, 16, 0), IsEmpty());
  EXPECT_THAT(notices({.layout = {.tensor_parallel = 2}, .expert_parallel = true}, 16, 8),
              IsEmpty());
}

TEST(Layout, TellsThatExpertsAreSpreadUnasked) {
  EXPECT_THAT(notices({.layout = {.data_parallel = 2}}, 16, 8),
              ElementsAre(StartsWith("experts_over_all_ranks ranks=2 ")));
  EXPECT_THAT(notices({.expert_parallel = true}, 16, 8),
              ElementsAre(StartsWith("expert_parallel_unused ")));
}

TEST(Layout, TellsThatItsBitsAreNotThoseOfOneRank) {
  // 40 heads are summed as trees of 32 and 8, and two ranks hold 20 each.
  EXPECT_THAT(notices({.layout = {.tensor_parallel = 2}}, 40, 0),
              ElementsAre(StartsWith("layout_not_exact tensor_parallel=2 ")));
}

}  // namespace
}  // namespace tandem::apps
