// Goal: when ranks are lost, data-parallel groups that are whole go on with the bits of one rank;
// what needs an expert that is lost ends with one error that names it, and never with a wrong
// token, also later, when prefixes are shared; a second loss is like the first; experts come back
// when they are placed anew. Method: ranks are threads, some of which give up in the middle of
// mixed requests; the answers of one rank are the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/ranks/serve_requests.h"
#include "tests/ranks/test_models.h"

namespace tandem::ranks {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

struct Counts {
  size_t whole = 0;
  size_t cut_by_experts = 0;  ///< needed an expert that is lost
  size_t cut_by_ranks = 0;    ///< were at a rank that is lost
};

/// Answers are those of one rank, or their beginning and an error.
Counts expect_right_or_told(const std::vector<Answer>& answers,
                            const std::vector<Answer>& expected) {
  Counts counts;
  std::vector<size_t> cut;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].reason != engine::FinishReason::kError) {
      ++counts.whole;
      continue;
    }
    cut.push_back(i);
    const bool by_expert = answers[i].error.find("needs expert") != std::string::npos;
    ++(by_expert ? counts.cut_by_experts : counts.cut_by_ranks);
    EXPECT_THAT(answers[i].error, HasSubstr("rank "));
    EXPECT_THAT(answers[i].error, HasSubstr(" of host "));
    EXPECT_THAT(answers[i].error, HasSubstr("start the ranks again"));
  }
  expect_same(answers, expected, cut);
  return counts;
}

/// Requests run while `lose` is called, once some tokens have been made.
std::vector<Answer> serve_through(const ThreadRanks& ranks,
                                  const std::vector<engine::Request>& requests,
                                  const std::function<void()>& lose) {
  engine::EngineClient& client = *ranks.set->client();
  const uint64_t before = client.status().generated_tokens;
  std::jthread loser([&] {
    while (client.status().generated_tokens < before + 15) std::this_thread::yield();
    lose();
  });
  return serve_all(client, requests, {}, 1);
}

/// Until the survivors say that these are gone, and they themselves have left: threads of one
/// process can be told that they are dead, and take requests until they notice.
void await_losses(const ThreadRanks& ranks, const std::vector<int>& gone) {
  const auto start = steady_clock::now();
  const auto all_know = [&] {
    return ranks.set->client()->status().lost_ranks.size() == gone.size() &&
           std::ranges::all_of(gone, [&](int rank) { return ranks.has_left(rank); });
  };
  while (!all_know()) {
    std::this_thread::sleep_for(milliseconds(5));
    ASSERT_LT(steady_clock::now() - start, std::chrono::seconds(30)) << "nobody says so";
  }
}

TEST(Losses, WithCopiesOfAllExpertsEverythingIsAnswered) {
  const ScoredModel model = tiny_moe(DType::kBF16);
  const auto requests = mixed_requests(32, model.config.vocab_size, 21);
  const auto expected = serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, 1);
  for (const int victim : {0, 3}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    const ThreadRanks ranks =
        ThreadRanks::start(model, {.data_parallel = 4, .redundant_experts = 16});
    const auto lose = [&] { ranks.group->fail(victim, "the test ended it"); };
    const Counts counts = expect_right_or_told(serve_through(ranks, requests, lose), expected);
    EXPECT_EQ(counts.cut_by_experts, 0u);
    EXPECT_LT(counts.cut_by_ranks, requests.size() / 2);
    await_losses(ranks, {victim});
    EXPECT_TRUE(ranks.set->client()->status().ready);
    EXPECT_THAT(ranks.set->client()->status().lost_ranks[0],
                HasSubstr("rank " + std::to_string(victim) + " of host "));
    expect_same(serve_all(*ranks.set->client(), requests, {}, 1), expected, {});
  }
}

TEST(Losses, WhatNeedsALostExpertEndsWithItsName) {
  // So many experts that a short request can do without those of one rank.
  const ScoredModel model = random_model({.experts = 64, .experts_per_token = 2}, DType::kF32);
  auto requests = mixed_requests(60, model.config.vocab_size, 22);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 3 != 0) continue;
    requests[i].prompt.resize(1);
    requests[i].tokens_max = 2;
  }
  const auto expected = serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, 1);
  const ThreadRanks ranks = ThreadRanks::start(model, {.data_parallel = 8});
  const auto lose = [&] { ranks.group->fail(5, "the test ended it"); };
  expect_right_or_told(serve_through(ranks, requests, lose), expected);
  await_losses(ranks, {5});
  // The second time prefixes of the first are found: those that were computed rightly.
  for (int round = 0; round < 2; ++round) {
    const auto answers = serve_all(*ranks.set->client(), requests, {}, 1);
    const Counts counts = expect_right_or_told(answers, expected);
    EXPECT_GT(counts.whole, 0u);
    EXPECT_GT(counts.cut_by_experts, 0u);
    EXPECT_EQ(counts.cut_by_ranks, 0u);
    for (const Answer& answer : answers) {
      if (answer.reason != engine::FinishReason::kError) continue;
      EXPECT_THAT(answer.error,
                  AllOf(HasSubstr("needs expert "), HasSubstr("lost with rank 5 of host ")));
    }
  }
}

TEST(Losses, OneAfterAnotherUntilOneIsLeft) {
  const ScoredModel model = random_model({}, DType::kBF16);
  const auto requests = mixed_requests(24, model.config.vocab_size, 23);
  const auto expected = serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, 1);
  // Three copies of each expert, over all ranks: the last one has them all.
  const ThreadRanks ranks =
      ThreadRanks::start(model, {.data_parallel = 3, .redundant_experts = 32});
  std::vector<int> gone;
  for (const int victim : {0, 2}) {
    const auto lose = [&] { ranks.group->fail(victim, "the test ended it"); };
    const Counts counts = expect_right_or_told(serve_through(ranks, requests, lose), expected);
    EXPECT_EQ(counts.cut_by_experts, 0u);
    gone.push_back(victim);
    await_losses(ranks, gone);
    expect_same(serve_all(*ranks.set->client(), requests, {}, 1), expected, {});
  }
}

TEST(Losses, AnIdleGroupNoticesAndServesOn) {
  const ScoredModel model = random_model({}, DType::kBF16);
  const auto requests = mixed_requests(8, model.config.vocab_size, 24);
  const auto expected = serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, 1);
  const ThreadRanks ranks =
      ThreadRanks::start(model, {.data_parallel = 4, .redundant_experts = 16});
  ranks.group->fail(2, "the test ended it");
  await_losses(ranks, {2});
  expect_same(serve_all(*ranks.set->client(), requests, {}, 1), expected, {});
}

TEST(Losses, ATensorParallelGroupGoesAsAWhole) {
  const ScoredModel model = random_model({}, DType::kBF16);
  const auto requests = mixed_requests(24, model.config.vocab_size, 25);
  const auto expected = serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, 1);
  for (const int victim : {0, 1, 2, 3}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    const ThreadRanks ranks = ThreadRanks::start(
        model, {.tensor_parallel = 2, .data_parallel = 2, .redundant_experts = 16});
    const auto lose = [&] { ranks.group->fail(victim, "the test ended it"); };
    const Counts counts = expect_right_or_told(serve_through(ranks, requests, lose), expected);
    EXPECT_EQ(counts.cut_by_experts, 0u);
    await_losses(ranks, {victim / 2 * 2, victim / 2 * 2 + 1});
    expect_same(serve_all(*ranks.set->client(), requests, {}, 1), expected, {});
  }
}

TEST(Losses, LostExpertsComeBackWhenTheyArePlacedAnew) {
  const ScoredModel model = random_model({}, DType::kBF16);
  const auto requests = mixed_requests(24, model.config.vocab_size, 26);
  const auto expected = serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, 1);
  // Room for all experts on any three ranks, but a copy of only some, not of experts 8 to 11. They
  // are not looked at for long, except after a loss.
  const ThreadRanks ranks = ThreadRanks::start(
      model, {.data_parallel = 4, .redundant_experts = 8, .rebalances_experts = true},
      {.interval_steps = 1'000'000});
  const auto lose = [&] { ranks.group->fail(1, "the test ended it"); };
  expect_right_or_told(serve_through(ranks, requests, lose), expected);
  await_losses(ranks, {1});
  const auto start = steady_clock::now();
  while (true) {
    const auto answers = serve_all(*ranks.set->client(), requests, {}, 1);
    if (expect_right_or_told(answers, expected).whole == requests.size()) break;
    ASSERT_LT(steady_clock::now() - start, std::chrono::seconds(30)) << "they do not come back";
  }
  // Counted since the loss: what the survivors had was not enough.
  EXPECT_GT(ranks.set->balance_status()[0].experts_moved, 0u);
}

/// Takes what engines say and waits for nothing.
class Unheard final : public engine::EventSink {
  void on_events(std::span<engine::Event>) override {}
};

TEST(Losses, AnOrderlyEndIsNone) {
  const ScoredModel model = random_model({}, DType::kBF16);
  for (const model::Layout& layout : {model::Layout{.data_parallel = 4},
                                      model::Layout{.tensor_parallel = 2, .data_parallel = 2}}) {
    for (int end = 0; end < 10; ++end) {
      SCOPED_TRACE("end " + std::to_string(end));
      Unheard sink;
      ThreadRanks ranks = ThreadRanks::start(model, layout);
      // Every second time in the middle of steps.
      auto requests = mixed_requests(end % 2 == 0 ? 0 : 8, model.config.vocab_size, 27);
      for (engine::Request& request : requests) {
        request.tokens_max = 100;
        EXPECT_TRUE(ranks.set->client()->submit(std::move(request), sink).ok());
      }
      std::this_thread::sleep_for(milliseconds(5));
      ranks.set.reset();
      EXPECT_EQ(*ranks.regroups, 0);
      for (int rank = 0; rank < layout.ranks_count(); ++rank) {
        EXPECT_TRUE(ranks.has_left(rank)) << rank;
        EXPECT_FALSE(ranks.group->heap(rank).health().has_failed()) << "a good end is no failure";
      }
    }
  }
}

}  // namespace
}  // namespace tandem::ranks
