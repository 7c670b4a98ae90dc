// Goal: the board gives work only to workers that serve, counts what it gave until a report
// includes it, and starts anew with each life of a worker. Method: cases by hand, then random
// histories against a plain record of each worker's state.

#include "cluster/worker_board.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::cluster {
namespace {

using rpc::Member;
using rpc::Role;

uint64_t fnv(std::span<const std::byte> bytes, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

constexpr WorkerBoard::Options kOptions{.prefix_keys = {&fnv, 1, 16}, .unreported_max = 8};

Member member_of(const std::string& id, uint64_t generation = 1) {
  return {.id = id,
          .role = id[0] == 'd' ? Role::kDecode : Role::kPrefill,
          .generation = generation,
          .address = "somewhere"};
}

WorkerReport report_of(uint64_t included, uint64_t pages_free = 100) {
  return {.requests_included = included,
          .page_tokens = 16,
          .model_length_max = 10'000,
          .ranks = {{.pages_total = 100, .pages_free = pages_free}}};
}

class WorkerBoardTest : public testing::Test {
 protected:
  void come(const std::string& id, uint64_t generation = 1) {
    board.listed(member_of(id, generation));
    board.connected(id, generation);
    board.reported(id, report_of(0));
  }
  Result<Assignment> assign(const std::vector<TokenId>& tokens) {
    return board.assign(tokens, "", 10);
  }

  WorkerBoard board{kOptions};
  const std::vector<TokenId> prompt = std::vector<TokenId>(320, 7);
};

TEST_F(WorkerBoardTest, AWorkerServesWhenListedConnectedAndReporting) {
  EXPECT_EQ(board.missing(),
            (std::vector<std::string>{"no prefill worker serves", "no decode worker serves"}));
  come("p0");
  board.connected("d0", 1);  // not listed: ignored
  board.listed(member_of("d0", 2));
  EXPECT_NE(assign(prompt).error().what.find("d0 is not connected"), std::string::npos);
  board.connected("d0", 1);  // the life before
  board.reported("d0", report_of(0));
  EXPECT_FALSE(assign(prompt).ok());
  board.connected("d0", 2);
  EXPECT_NE(assign(prompt).error().what.find("d0 does not report"), std::string::npos);
  board.reported("d0", report_of(0));
  const auto assignment = assign(prompt);
  ASSERT_TRUE(assignment.ok());
  EXPECT_EQ(assignment->decode_worker, "d0");
  EXPECT_EQ(assignment->prefill_worker, "p0");
  EXPECT_EQ(board.missing().size(), 0u);
  Member draining = member_of("d0", 2);
  draining.draining = true;
  board.listed(draining);
  EXPECT_NE(assign(prompt).error().what.find("d0 is draining"), std::string::npos);
  board.left("d0");
  EXPECT_FALSE(assign(prompt).ok());
}

TEST_F(WorkerBoardTest, WhatWasSentCountsUntilAReportIncludesIt) {
  for (const char* id : {"d0", "d1", "p0", "p1"}) come(id);
  // 21 of 100 pages and 320 tokens each; of equals they take turns, so the load stays even.
  std::map<std::string, int> decode, prefill;
  for (int i = 0; i < 8; ++i) {
    const std::vector<TokenId> other(320, 100 + i);  // no common prefix
    const auto assignment = assign(other);
    ASSERT_TRUE(assignment.ok());
    EXPECT_EQ(assignment->decode_number,
              static_cast<uint64_t>(++decode[assignment->decode_worker]));
    EXPECT_EQ(assignment->prefill_number,
              static_cast<uint64_t>(++prefill[*assignment->prefill_worker]));
  }
  EXPECT_EQ(decode["d0"], 4);
  EXPECT_EQ(prefill["p0"], 4);
  // One reports that it is done with all: the next go there.
  board.reported("p1", report_of(4));
  board.reported("d1", report_of(4));
  for (int i = 0; i < 3; ++i) {
    const auto assignment = assign(std::vector<TokenId>(320, 200 + i));
    EXPECT_EQ(assignment->decode_worker, "d1");
    EXPECT_EQ(assignment->prefill_worker, "p1");
  }
}

TEST_F(WorkerBoardTest, ALaggingWorkerGetsNoMore) {
  come("d0");
  come("p0");
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(assign(prompt).ok());
  EXPECT_NE(assign(prompt).error().what.find("does not report"), std::string::npos);
  board.reported("d0", report_of(8));
  board.reported("p0", report_of(8));
  EXPECT_TRUE(assign(prompt).ok());
}

TEST_F(WorkerBoardTest, PromptsFollowTheirPrefixUntilTheWorkersNextLife) {
  for (const char* id : {"d0", "d1", "p0", "p1"}) come(id);
  const auto first = assign(prompt);
  const std::string worker = *first->prefill_worker;
  for (const char* id : {"d0", "d1", "p0", "p1"}) board.reported(id, report_of(1));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(assign(prompt)->prefill_worker, worker);
    for (const char* id : {"d0", "d1", "p0", "p1"}) board.reported(id, report_of(10));
  }
  // A connection that is lost takes no cache along, a new life does.
  board.disconnected(worker, "");
  board.connected(worker, 1);
  board.reported(worker, report_of(0));
  EXPECT_EQ(assign(prompt)->prefill_worker, worker);
  // The prefix outweighs 100 queued tokens while it is believed to be there, and not after.
  WorkerReport busy = report_of(10);
  busy.queued_tokens = 100;
  board.reported(worker, busy);
  EXPECT_EQ(assign(prompt)->prefill_worker, worker);
  come(worker, 2);
  busy.requests_included = 0;
  board.reported(worker, busy);
  EXPECT_NE(assign(prompt)->prefill_worker, worker);
}

TEST_F(WorkerBoardTest, AMismatchHoldsUntilOneOfTheTwoIsAnotherLife) {
  come("d0");
  come("p0");
  board.mismatched("d0", "p0", "element: bf16 here, f32 there");
  EXPECT_NE(assign(prompt).error().what.find("element: bf16 here"), std::string::npos);
  EXPECT_EQ(board.missing(),
            (std::vector<std::string>{"d0 does not match p0 (element: bf16 here, f32 there)"}));
  board.reported("p0", report_of(0));
  EXPECT_FALSE(assign(prompt).ok());
  come("p0", 2);
  EXPECT_TRUE(assign(prompt).ok());
  board.mismatched("d0", "nobody", "ignored");
  board.mismatched("d0", "p0", "again");
  EXPECT_FALSE(board.missing().empty());
  board.mismatched("d0", "p0", "");
  EXPECT_TRUE(board.missing().empty());
  EXPECT_EQ(board.missing().size(), 0u);
}

TEST_F(WorkerBoardTest, AnImpossibleReportIsIgnored) {
  come("d0");
  come("p0");
  WorkerReport report = report_of(0);
  report.ranks.resize(1025);
  board.reported("d0", report);
  EXPECT_TRUE(assign(prompt).ok());
  // No rank at all: nobody can be chosen there.
  report.ranks.clear();
  board.reported("d0", report);
  EXPECT_FALSE(assign(prompt).ok());
}

TEST_F(WorkerBoardTest, APromptThatIsComputedIsNoLongerQueued) {
  for (const char* id : {"d0", "p0", "p1"}) come(id);
  // One long prompt goes to each; the next ones go where it is done.
  std::map<std::string, Assignment> sent;
  for (TokenId token = 1; token <= 2; ++token) {
    const auto assignment = assign(std::vector<TokenId>(320, token));
    sent[*assignment->prefill_worker] = *assignment;
  }
  ASSERT_EQ(sent.size(), 2u);
  for (int i = 0; i < 3; ++i) {
    board.prefilled(sent["p1"]);
    board.prefilled(sent["p1"]);
    const auto next = assign(std::vector<TokenId>(320, 10 + i));
    EXPECT_EQ(next->prefill_worker, "p1");
    sent["p1"] = *next;
  }
  // On a new connection numbers start again; what is done was of the old one.
  board.disconnected("p1", "");
  board.connected("p1", 1);
  board.reported("p1", report_of(0));
  const auto anew = assign(std::vector<TokenId>(400, 20));
  EXPECT_EQ(anew->prefill_worker, "p1");
  board.prefilled(sent["p1"]);
  EXPECT_EQ(assign(std::vector<TokenId>(200, 21))->prefill_worker, "p0");
}

TEST_F(WorkerBoardTest, WhatWasNotSentDoesNotCount) {
  come("d0");
  come("p0");
  for (int i = 0; i < 100; ++i) {
    const auto assignment = assign(prompt);
    ASSERT_TRUE(assignment.ok());
    board.not_sent(*assignment);
  }
}

TEST_F(WorkerBoardTest, OthersAreTriedBeforeThoseThatFailed) {
  for (const char* id : {"d0", "d1", "p0", "p1"}) come(id);
  std::vector<Assignment> failed = {*assign(prompt)};
  const auto next = board.assign(prompt, "", 10, failed);
  EXPECT_NE(next->decode_worker, failed[0].decode_worker);
  EXPECT_NE(next->prefill_worker, failed[0].prefill_worker);
  board.left(next->decode_worker);
  board.left(*next->prefill_worker);
  EXPECT_TRUE(board.assign(prompt, "", 10, failed).ok());  // there is nobody else
}

TEST_F(WorkerBoardTest, WhoFellSilentServesOnceItReportsAgain) {
  come("d0");
  come("p0");
  EXPECT_TRUE(board.can_serve());
  board.silent("d0");
  EXPECT_FALSE(board.can_serve());
  EXPECT_NE(assign(prompt).error().what.find("d0 does not report"), std::string::npos);
  board.reported("d0", report_of(0));
  EXPECT_TRUE(board.can_serve());
}

TEST_F(WorkerBoardTest, OnlyRanksThatAreReadyGetRequests) {
  come("d0");
  come("p0");
  WorkerReport report = report_of(0);
  report.ranks.push_back(report.ranks[0]);
  report.ranks[0].ready = false;
  board.reported("d0", report);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(assign(prompt)->decode_rank, 1u);
  report.ranks[1].ready = false;
  board.reported("d0", report);
  EXPECT_NE(assign(prompt).error().what.find("d0 rank 0 is not ready"), std::string::npos);
  EXPECT_EQ(board.missing(),
            (std::vector<std::string>{"decode worker d0 is not ready", "no decode worker serves"}));
  report.ranks[1].ready = true;
  report.draining = true;
  board.reported("d0", report);
  EXPECT_NE(assign(prompt).error().what.find("is draining"), std::string::npos);
}

TEST_F(WorkerBoardTest, WhyAWorkerIsNotConnectedIsSaid) {
  board.listed(member_of("d0"));
  board.disconnected("d0", "nobody listens there");
  EXPECT_EQ(board.missing()[0], "decode worker d0 is not connected: nobody listens there");
}

/// What is true of a worker, told plainly.
struct Truth {
  bool is_listed = false, drains = false, reports = false;
  uint64_t generation = 0, connected = 0;
  uint64_t sent = 0, included = 0;  ///< on this connection
  bool serves() const {
    return is_listed && connected != 0 && connected == generation && reports && !drains &&
           sent - included < kOptions.unreported_max;
  }
};

/// Something happens to a worker, on the board and in truth.
void random_event(std::mt19937_64& random, WorkerBoard& board, const std::string& id,
                  Truth& worker) {
  switch (random() % 8) {
    case 0: {
      Member member = member_of(id, worker.generation = 1 + random() % 3);
      member.registration = random();  // each time it is another
      member.draining = worker.drains = random() % 4 == 0;
      board.listed(member);
      worker.is_listed = true;
      worker.reports = false;
      worker.included = worker.sent;
      return;
    }
    case 1:
      if (random() % 4 != 0) return;
      board.left(id);
      worker = {};
      return;
    case 2:
    case 3:
      if (!worker.is_listed) return;
      worker.connected = random() % 4 == 0 ? 1 + random() % 3 : worker.generation;
      board.connected(id, worker.connected);
      worker.reports = false;
      worker.sent = worker.included = 0;
      return;
    case 4:
      if (random() % 4 != 0) return;
      board.disconnected(id, "");
      worker.connected = 0;
      worker.reports = false;
      return;
    default:
      if (worker.connected == 0) return;
      worker.included += random() % (worker.sent - worker.included + 1);
      board.reported(id, report_of(worker.included, random() % 101));
      worker.reports = true;
  }
}

TEST(WorkerBoard, RandomHistoriesNeverChooseWhoDoesNotServe) {
  int assigned = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    WorkerBoard board(kOptions);
    std::map<std::string, Truth> truth;
    const char* names[] = {"d0", "d1", "p0", "p1", "p2"};
    for (int step = 0; step < 300; ++step) {
      const std::string id = names[random() % 5];
      random_event(random, board, id, truth[id]);
      const bool decode = truth["d0"].serves() || truth["d1"].serves();
      const bool prefill = truth["p0"].serves() || truth["p1"].serves() || truth["p2"].serves();
      const auto assignment = board.assign(std::vector<TokenId>(40, 1 + random() % 4), "", 10);
      ASSERT_EQ(assignment.ok(), decode && prefill) << "seed " << seed << " step " << step;
      if (!assignment.ok()) continue;
      ++assigned;
      for (const std::string& name : {assignment->decode_worker, *assignment->prefill_worker}) {
        ASSERT_TRUE(truth[name].serves()) << name << " seed " << seed << " step " << step;
        truth[name].sent += 1;
      }
      ASSERT_EQ(assignment->decode_number, truth[assignment->decode_worker].sent);
    }
  }
  EXPECT_GT(assigned, 1'000);
}

}  // namespace
}  // namespace tandem::cluster
