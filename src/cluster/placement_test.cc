// Goal: a request goes only to workers that may serve it, to no pair that another one beats in
// every respect, and a refusal names what speaks against each. Method: cases by hand, and random
// clusters checked by properties that do not know the formula.

#include "cluster/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace tandem::cluster {
namespace {

std::string name_of(char kind, size_t index) {
  std::string name(1, kind);
  name += std::to_string(index);
  return name;
}

DecodeRank decode_rank(const std::string& name) {
  return {.name = name,
          .page_tokens = 16,
          .model_length_max = 50'000,
          .pages_total = 1000,
          .pages_free = 1000};
}

struct Cluster {
  std::vector<DecodeRank> decode_ranks{decode_rank("d0"), decode_rank("d1")};
  std::vector<PrefillCandidate> prefill_workers{{.name = "p0"}, {.name = "p1"}};
  std::vector<Mismatch> mismatches;
  uint64_t prompt_tokens = 1000;
  uint64_t tokens_max = 100;
  uint64_t turn = 0;

  Result<Placement> place() const {
    return cluster::place({.prompt_tokens = prompt_tokens,
                           .tokens_max = tokens_max,
                           .decode_ranks = decode_ranks,
                           .prefill_workers = prefill_workers,
                           .mismatches = mismatches,
                           .turn = turn});
  }
};

TEST(Placement, LessQueuedTokensAndMoreFreePagesWin) {
  Cluster cluster;
  cluster.prefill_workers[0].queued_tokens = 1;
  cluster.decode_ranks[0].pages_free = 10;
  const auto placement = cluster.place();
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->decode, 1u);
  EXPECT_EQ(placement->prefill, 1u);
}

TEST(Placement, AKnownPrefixIsWorthItsTokensInTheQueue) {
  Cluster cluster;
  cluster.prefill_workers[0].cached_tokens = 800;
  cluster.prefill_workers[0].queued_tokens = 799;
  EXPECT_EQ(cluster.place()->prefill, 0u);
  cluster.prefill_workers[0].queued_tokens = 801;
  EXPECT_EQ(cluster.place()->prefill, 1u);
  cluster.decode_ranks[1].cached_tokens = 512;
  EXPECT_EQ(cluster.place()->decode, 1u);
}

TEST(Placement, OnlyWhatTheDecodeRankHasGoesWithoutAPrefillWorker) {
  Cluster cluster;
  cluster.prefill_workers.clear();
  EXPECT_EQ(cluster.place().error().code, Code::kUnavailable);
  cluster.decode_ranks[1].cached_tokens = 999;
  auto placement = cluster.place();
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->decode, 1u);
  EXPECT_FALSE(placement->prefill.has_value());
  // It may have evicted the prompt, so that it gets a worker where there is one.
  cluster.prefill_workers = {{.name = "p0"}};
  placement = cluster.place();
  EXPECT_EQ(placement->decode, 1u);
  EXPECT_TRUE(placement->prefill.has_value());
  cluster.decode_ranks[1].cached_tokens = 0;
  cluster.prompt_tokens = 1;
  placement = cluster.place();
  ASSERT_TRUE(placement.ok());
  EXPECT_FALSE(placement->prefill.has_value());
}

TEST(Placement, ARefusalNamesWhatSpeaksAgainstEach) {
  Cluster cluster;
  cluster.decode_ranks[0].health = Health::kDraining;
  cluster.prefill_workers[0].health = Health::kDead;
  cluster.mismatches = {{.decode = 1, .prefill = 1, .reason = "page dtype: f32 here, bf16 there"}};
  const auto refused = cluster.place();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_EQ(refused.error().what,
            "no worker can serve a prompt of 1000 tokens: d0 is draining; p0 is not connected; p1 "
            "does not match d1 (page dtype: f32 here, bf16 there)");
  cluster.decode_ranks.clear();
  EXPECT_NE(cluster.place().error().what.find("no decode worker"), std::string::npos);
}

TEST(Placement, ARequestThatNeverFitsIsTheClientsFault) {
  Cluster cluster;
  cluster.tokens_max = 15'001;  // 1001 pages
  const auto refused = cluster.place();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().what.find("1001 are needed"), std::string::npos);
  cluster.decode_ranks[1].pages_total = 1001;
  EXPECT_EQ(cluster.place()->decode, 1u);
  // A rank that is away might have had room.
  cluster.decode_ranks[1].health = Health::kDead;
  EXPECT_EQ(cluster.place().error().code, Code::kUnavailable);
}

TEST(Placement, AnAnswerThatWouldPassTheModelsLengthNeedsOnlyThat) {
  Cluster cluster;
  for (DecodeRank& rank : cluster.decode_ranks) rank.model_length_max = 16'000;  // 1000 pages
  cluster.tokens_max = 1'000'000;
  EXPECT_TRUE(cluster.place().ok());
  cluster.prompt_tokens = 15'999;
  EXPECT_TRUE(cluster.place().ok());
  cluster.prompt_tokens = 16'000;
  const auto refused = cluster.place();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().what.find("d0 holds 16000 tokens"), std::string::npos);
}

TEST(Placement, LongRefusalsAreCut) {
  Cluster cluster;
  cluster.decode_ranks.assign(100, decode_rank(""));
  for (size_t i = 0; i < 100; ++i) {
    cluster.decode_ranks[i].name = name_of('d', i);
    cluster.decode_ranks[i].health = Health::kDead;
  }
  EXPECT_NE(cluster.place().error().what.find("and 84 more"), std::string::npos);
}

TEST(Placement, EqualsTakeTurns) {
  Cluster cluster;
  std::map<size_t, int> decode, prefill;
  for (cluster.turn = 0; cluster.turn < 10; ++cluster.turn) {
    const auto placement = cluster.place();
    decode[placement->decode] += 1;
    prefill[*placement->prefill] += 1;
  }
  EXPECT_EQ(decode[0], 5);
  EXPECT_EQ(prefill[0], 5);
}

// Random clusters.

Health random_health(std::mt19937_64& random) {
  const auto choice = random() % 6;
  return choice == 0 ? Health::kDraining : choice == 1 ? Health::kDead : Health::kServing;
}

Cluster random_cluster(std::mt19937_64& random) {
  Cluster cluster;
  cluster.decode_ranks.assign(random() % 5, {});
  for (size_t i = 0; i < cluster.decode_ranks.size(); ++i) {
    DecodeRank& rank = cluster.decode_ranks[i];
    rank = {.name = name_of('d', i),
            .health = random_health(random),
            .page_tokens = uint32_t{1} << (random() % 7),
            .model_length_max = static_cast<uint32_t>(300 + random() % 1000),
            .pages_total = random() % 300,
            .requests_waiting = static_cast<uint32_t>(random() % 3),
            .cached_tokens = random() % 3 == 0 ? random() % 700 : 0};
    rank.pages_free = random() % (rank.pages_total + 1);
  }
  cluster.prefill_workers.assign(random() % 5, {});
  for (size_t i = 0; i < cluster.prefill_workers.size(); ++i) {
    cluster.prefill_workers[i] = {.name = name_of('p', i),
                                  .health = random_health(random),
                                  .queued_tokens = random() % 1000,
                                  .cached_tokens = random() % 2 == 0 ? random() % 700 : 0};
    for (size_t decode = 0; decode < cluster.decode_ranks.size(); ++decode) {
      if (random() % 4 != 0) continue;
      cluster.mismatches.push_back({decode, i, "layout"});
    }
  }
  cluster.prompt_tokens = 1 + random() % 600;
  cluster.tokens_max = 1 + random() % 600;
  cluster.turn = random();
  return cluster;
}

bool may_decode(const Cluster& cluster, size_t decode) {
  const DecodeRank& rank = cluster.decode_ranks[decode];
  const uint64_t tokens =
      std::min<uint64_t>(cluster.prompt_tokens + cluster.tokens_max, rank.model_length_max);
  return rank.health == Health::kServing && cluster.prompt_tokens < rank.model_length_max &&
         tokens <= rank.pages_total * rank.page_tokens;
}
bool may_be_alone(const Cluster& cluster, size_t decode) {
  return cluster.decode_ranks[decode].cached_tokens >= cluster.prompt_tokens - 1;
}
bool may_pair(const Cluster& cluster, size_t decode, size_t prefill) {
  for (const Mismatch& mismatch : cluster.mismatches) {
    if (mismatch.decode == decode && mismatch.prefill == prefill) return false;
  }
  return cluster.prefill_workers[prefill].health == Health::kServing;
}

/// Whether `a` is at least as good as `b` in all that can be compared, and better in something.
bool beats(const DecodeRank& a, const DecodeRank& b) {
  return a.page_tokens == b.page_tokens && a.pages_free >= b.pages_free &&
         a.requests_waiting <= b.requests_waiting && a.cached_tokens >= b.cached_tokens &&
         a.requests_waiting < b.requests_waiting;
}
bool beats(const PrefillCandidate& a, const PrefillCandidate& b) {
  return a.queued_tokens < b.queued_tokens && a.cached_tokens >= b.cached_tokens;
}

TEST(Placement, RandomClustersAreServedByThoseWhoMayAndNobodyBeatsThem) {
  int served = 0, refused = 0, alone = 0;
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    std::mt19937_64 random(seed);
    const Cluster cluster = random_cluster(random);
    const auto placement = cluster.place();
    bool possible_alone = false, possible_pair = false;
    for (size_t d = 0; d < cluster.decode_ranks.size(); ++d) {
      if (!may_decode(cluster, d)) continue;
      possible_alone |= may_be_alone(cluster, d);
      for (size_t p = 0; p < cluster.prefill_workers.size(); ++p) {
        possible_pair |= may_pair(cluster, d, p);
      }
    }
    ASSERT_EQ(placement.ok(), possible_alone || possible_pair) << "seed " << seed;
    if (!placement.ok()) {
      ++refused;
      continue;
    }
    ++served;
    const size_t decode = placement->decode;
    ASSERT_TRUE(may_decode(cluster, decode)) << "seed " << seed;
    ASSERT_EQ(placement->prefill.has_value(), possible_pair && cluster.prompt_tokens > 1)
        << "seed " << seed;
    ASSERT_TRUE(placement->prefill || may_be_alone(cluster, decode)) << "seed " << seed;
    for (size_t d = 0; d < cluster.decode_ranks.size(); ++d) {
      if (!may_decode(cluster, d)) continue;
      // With the same prefill worker, or without as well.
      if (placement->prefill ? !may_pair(cluster, d, *placement->prefill)
                             : !may_be_alone(cluster, d)) {
        continue;
      }
      ASSERT_FALSE(beats(cluster.decode_ranks[d], cluster.decode_ranks[decode])) << "seed " << seed;
    }
    if (!placement->prefill) {
      ++alone;
      continue;
    }
    ASSERT_TRUE(may_pair(cluster, decode, *placement->prefill)) << "seed " << seed;
    for (size_t p = 0; p < cluster.prefill_workers.size(); ++p) {
      ASSERT_FALSE(may_pair(cluster, decode, p) &&
                   beats(cluster.prefill_workers[p], cluster.prefill_workers[*placement->prefill]))
          << "seed " << seed;
    }
  }
  // The generator makes all kinds.
  EXPECT_GT(served, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(alone, 100);
}

}  // namespace
}  // namespace tandem::cluster
