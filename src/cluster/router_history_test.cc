// Goal: no history of deaths, losses, partitions, refusals and cancellations makes a request end
// twice or never, or mixes up its tokens. Method: a router and made-up workers in virtual time and
// seeded random histories; after each, calm, and a look at every request.
#include <gtest/gtest.h>

#include <random>

#include "cluster/testing/router_fixture.h"

namespace tandem::cluster {
namespace {

class RouterHistory : public RouterTest {
 protected:
  void step(std::mt19937_64& random) {
    const std::string id = std::vector<std::string>{"d0", "d1", "p0", "p1"}[random() % 4];
    const auto worker = workers_.find(id);
    const bool lives = worker != workers_.end();
    switch (random() % 12) {
      case 0:
        return die(id);
      case 1:
        if (!lives) come(id, 1 + random() % 2);
        return;
      case 2:
        return world_.network.drop_connections(id, "router");
      case 3:
        return world_.network.partition(id, "router");
      case 4:
        return world_.network.heal(id, "router");
      case 5:
        if (lives) worker->second->refuses = random() % 3 == 0;
        return;
      case 6:
        if (lives) worker->second->generates = random() % 3 != 0;
        return;
      case 7:
        if (lives) worker->second->reports = random() % 3 != 0;
        return;
      case 8:
        return world_.registry.set_reachable(id, random() % 2 == 0);
      default:
        if (submitted_ > 0 && random() % 4 == 0) {
          return router_->cancel(RequestId{1 + random() % submitted_});
        }
        if (try_submit(submitted_ + 1, {static_cast<TokenId>(submitted_ + 1), 1},
                       1 + static_cast<uint32_t>(random() % 20))
                .ok()) {
          asked_[++submitted_] = world_.executor.now();
        }
    }
  }

  uint64_t submitted_ = 0;
  std::map<uint64_t, io::Time> asked_;
};

TEST_F(RouterHistory, EveryRequestEndsOnceWithItsTokensInOrder) {
  // Each round goes on from whatever state the one before has left.
  uint64_t done = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "round of seed " << seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 100; ++i) {
      step(random);
      wait(milliseconds(random() % 100));
    }
    for (const char* id : {"d0", "d1", "p0", "p1"}) {
      world_.network.heal(id, "router");
      world_.registry.set_reachable(id, true);
    }
    for (const auto& [id, worker] : workers_) worker->generates = worker->reports = true;
    wait(seconds(30));
    ASSERT_EQ(sink_.seen.size(), submitted_);
    for (auto& [id, seen] : sink_.seen) {
      ASSERT_EQ(seen.ends.size(), 1u) << id.value;
      for (size_t i = 0; i < seen.tokens.size(); ++i) {
        ASSERT_EQ(seen.tokens[i], token_of(static_cast<TokenId>(id.value), i)) << id.value;
      }
      ASSERT_LE(seen.tokens.size(), 20u);
      done += seen.ends[0] == FinishReason::kLength;
    }
    sink_.seen.clear();
    submitted_ = 0;
    // Nothing was leaked of what is bounded.
    for (uint64_t id = 1; id <= 40; ++id) ASSERT_TRUE(try_submit(1'000'000 + id, {1}).ok());
    wait();
    sink_.seen.clear();
  }
  EXPECT_GT(done, 200u);  // of them many end well
}

}  // namespace
}  // namespace tandem::cluster
