// Goal: data-parallel ranks that have no work, or no memory for theirs, do not hold up the others
// (docs/field-cases.md, B1, B2 and B4). Method: a set of one rank each, as processes have, so that
// the test chooses which rank gets a request; the answers of one rank are the reference, and what
// idle ranks send is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/ranks/serve_requests.h"
#include "tests/ranks/test_models.h"

namespace tandem::ranks {
namespace {

/// Data-parallel ranks, each with an engine of its own.
class SeparateRanks {
 public:
  using Change = std::function<void(int rank, engine::RankSet::Options&)>;

  SeparateRanks(
      const ScoredModel& model, int ranks, const Change& change = [](int, auto&) {})
      : sets_(static_cast<size_t>(ranks)) {
    const engine::RankSet::Options common = set_options(model, {.data_parallel = ranks});
    group_ = comm::ThreadGroup::create(
                 {.ranks_count = ranks, .heap_bytes = engine::RankSet::heap_bytes(common).value()})
                 .value();
    std::vector<std::thread> threads;  // each waits for the others in warm-up
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        engine::RankSet::Options options = common;
        change(rank, options);
        std::vector<engine::RankSet::Member> members;
        members.push_back(
            {.rank = rank,
             .heap = &group_->heap(rank),
             .leave = [this, rank] { group_->leave(rank); },
             .fail = [this, rank](const std::string& why) { group_->fail(rank, why); }});
        sets_[static_cast<size_t>(rank)] =
            engine::RankSet::create(std::move(options), std::move(members)).value();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  engine::EngineClient& client(int rank) { return *sets_[static_cast<size_t>(rank)]->client(); }
  uint64_t bytes_put(int rank) { return group_->heap(rank).counters().bytes_put; }

 private:
  std::unique_ptr<comm::ThreadGroup> group_;
  std::vector<std::unique_ptr<engine::RankSet>> sets_;
};

std::vector<Answer> on_one_rank(const ScoredModel& model,
                                const std::vector<engine::Request>& requests) {
  return serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, 1);
}

/// B1: nobody but rank 2 has a request, so all others must join its steps.
TEST(IdleRanks, JoinTheStepsOfTheOnlyBusyOne) {
  const ScoredModel model = tiny_moe(DType::kBF16);
  const auto requests = mixed_requests(1, model.config.vocab_size, 21);
  const auto expected = on_one_rank(model, requests);
  for (const int ranks : {4, 16}) {
    SCOPED_TRACE(ranks);
    SeparateRanks separate(model, ranks);
    for (int round = 0; round < 2; ++round) {
      expect_same(serve_all(separate.client(2), requests, {}, 1), expected, {});
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // all sleep before the second
    }
  }
}

/// B2: rank 1 holds one long sequence at a time; the others have room for all of theirs.
TEST(IdleRanks, ARankShortOfPagesHoldsUpNobody) {
  const ScoredModel model = random_model({}, DType::kBF16);
  auto long_ones = mixed_requests(12, model.config.vocab_size, 22);
  for (engine::Request& request : long_ones) {
    request.prompt = random_texts({200}, model.config.vocab_size, request.id.value).front();
    request.tokens_max = 50;
  }
  const auto short_ones = mixed_requests(4, model.config.vocab_size, 23);
  const auto expected_long = on_one_rank(model, long_ones);
  const auto expected_short = on_one_rank(model, short_ones);
  SeparateRanks separate(model, 3, [](int rank, engine::RankSet::Options& options) {
    options.limits.pages_total = rank == 1 ? 16 : 64;
  });

  std::vector<Answer> got_long;
  std::atomic<bool> is_done = false;
  std::thread short_of_pages([&] {
    got_long = serve_all(separate.client(1), long_ones, {}, 1);
    is_done = true;
  });
  bool has_waited = false;
  for (const int rank : {0, 2}) {
    expect_same(serve_all(separate.client(rank), short_ones, {}, 1), expected_short, {});
    has_waited |= separate.client(1).status().requests_waiting > 0;
    EXPECT_FALSE(is_done) << "the others answer while rank 1 is busy with its first";
  }
  EXPECT_TRUE(has_waited) << "of rank 1's requests some are queued";
  short_of_pages.join();
  expect_same(got_long, expected_long, {});

  // What never fits is refused with the reason.
  class NoSink final : public engine::EventSink {
    void on_events(std::span<engine::Event>) override {}
  } sink;
  engine::Request too_long = long_ones.front();
  too_long.prompt.resize(300, 1);
  const auto refused = separate.client(1).submit(std::move(too_long), sink);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().what, testing::HasSubstr("256"));
}

/// B4: what an idle rank brings to others' steps does not depend on what it computed before.
TEST(IdleRanks, SendNoTokensOfEarlierRequests) {
  const ScoredModel model = tiny_moe(DType::kBF16);
  const auto requests = mixed_requests(3, model.config.vocab_size, 24);
  const auto expected = on_one_rank(model, requests);
  // Without prefix hits equal requests compute equally many tokens.
  SeparateRanks separate(model, 3, [](int, engine::RankSet::Options& options) {
    options.limits.prefix_caching = false;
  });
  // The bytes of an idle rank 0 while rank 2 answers: experts' rows of rank 2's tokens, headers.
  const auto idle_bytes = [&] {
    const uint64_t before = separate.bytes_put(0);
    expect_same(serve_all(separate.client(2), requests, {}, 1), expected, {});
    return static_cast<double>(separate.bytes_put(0) - before);
  };
  const double fresh = idle_bytes();
  expect_same(serve_all(separate.client(0), requests, {}, 1), expected, {});
  const double used = idle_bytes();
  // Requests that meet in other steps need other headers, of which a step has a few hundred bytes
  // at most; a stale token would send its row to four experts in each layer of every step.
  size_t steps = 0;
  for (const Answer& answer : expected) steps += answer.tokens.size() + 3;
  const auto row_bytes = static_cast<double>(model.config.hidden_size * sizeof(float));
  EXPECT_NEAR(used, fresh, static_cast<double>(steps) * row_bytes);
}

}  // namespace
}  // namespace tandem::ranks
