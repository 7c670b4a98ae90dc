// Goal: whoever reads the first lines of a server knows what it runs and what bounds it.
// Method: reports of made-up servers, of one rank and of several, line by line.
#include "apps/start_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::apps {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

StartFacts facts() {
  return {.folder = "models/some-moe",
          .names = {"some-moe", "alias"},
          .compute = DType::kF32,
          .limits = {.model_length_max = 4096,
                     .sequences_max = 7,
                     .step_tokens_max = 640,
                     .page_tokens = 32,
                     .pages_total = 300},
          .threads_per_rank = 3,
          .matrix_path = "portable",
          .host = "127.0.0.1",
          .port = 8123};
}

TEST(StartReport, SaysWhatOneRankRuns) {
  const std::string report = start_report(facts(), {});
  for (const char* line :
       {"model +models/some-moe\n", "served-model-name +some-moe, alias\n", "dtype +f32\n",
        "layout +1 rank\n", "kv-cache-tokens +9600 .300 pages of 32.\n", "max-model-len +4096\n",
        "max-num-seqs +7\n", "max-num-batched-tokens +640\n", "threads +3\n",
        "matrix-path +portable\n", "serving at http://127.0.0.1:8123\n"}) {
    EXPECT_THAT(report, ContainsRegex(line));
  }
  EXPECT_THAT(report, Not(HasSubstr("group")));
}

TEST(StartReport, SaysHowManyRanksShareIt) {
  LayoutOptions layout{.layout = {.tensor_parallel = 2, .data_parallel = 3}, .nodes_count = 2};
  const std::string report = start_report(facts(), layout);
  EXPECT_THAT(report, HasSubstr("6 ranks in 2 processes: tensor-parallel 2 x data-parallel 3\n"));
  EXPECT_THAT(report, HasSubstr("3 per rank\n"));
  EXPECT_THAT(report, ContainsRegex("max-num-seqs +7 in each data-parallel group\n"));
}

TEST(StartReport, BracketsIpv6) {
  StartFacts ipv6 = facts();
  ipv6.host = "::1";
  EXPECT_THAT(start_report(ipv6, {}), HasSubstr("serving at http://[::1]:8123\n"));
  EXPECT_THAT(example_call(ipv6), HasSubstr("curl http://[::1]:8123/v1/chat/completions "));
}

TEST(StartReport, AsksForAChatOnlyWhereThereCanBeOne) {
  StartFacts plain = facts();
  EXPECT_THAT(example_call(plain), HasSubstr("/v1/chat/completions "));
  plain.has_chat_template = false;
  EXPECT_THAT(example_call(plain), HasSubstr("/v1/completions "));
  EXPECT_THAT(example_call(plain), HasSubstr("\"prompt\": "));
  EXPECT_THAT(example_call(plain), Not(HasSubstr("chat")));
}

}  // namespace
}  // namespace tandem::apps
