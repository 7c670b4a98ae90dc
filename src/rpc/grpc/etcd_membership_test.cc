// Goal: the list over etcd follows what is announced, through deaths, returns, takeovers, outages,
// lost leases, compaction and the loss of all data.
// Method: a real etcd on a free port, one for all tests that do not harm it, each with a cluster of
// its own; a relay before it where one process is to lose it. Waits have deadlines far above what
// they wait for, as the machine may be busy.

#include "rpc/etcd_membership.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "io/event_loop.h"
#include "rpc/grpc/etcd.grpc.pb.h"
#include "rpc/grpc/member_entry.h"
#include "rpc/grpc/testing/etcd_process.h"
#include "rpc/grpc/testing/relay.h"
#include "rpc/testing/member_log.h"

namespace tandem::rpc {
namespace {

namespace etcd = etcdserverpb;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Lines = std::vector<std::string>;

class EtcdMembershipTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { shared = std::make_unique<EtcdProcess>(); }
  static void TearDownTestSuite() { shared.reset(); }

  void open(MemberLog& log, const std::string& endpoint) {
    EtcdOptions options;
    options.endpoints = {endpoint};
    options.cluster = testing::UnitTest::GetInstance()->current_test_info()->name();
    options.lease = seconds(2);  // etcd grants no shorter one
    options.call_max = milliseconds(1'000);
    options.retry_first = milliseconds(20);
    options.retry_max = milliseconds(200);
    auto opened = open_etcd_membership(options, loop, log);
    ASSERT_TRUE(opened.ok()) << opened.error().what;
    log.membership = std::move(*opened);
  }
  void open_both() {
    open(watcher, shared->endpoint());
    open(worker, shared->endpoint());
  }

  // What an operator does with etcdctl.
  std::string key(const std::string& id) const {
    return std::string("/tandem/") + testing::UnitTest::GetInstance()->current_test_info()->name() +
           "/workers/" + id;
  }
  void put(const std::string& id, const std::string& value) {
    grpc::ClientContext context;
    etcd::PutRequest request;
    request.set_key(key(id));
    request.set_value(value);
    etcd::PutResponse response;
    EXPECT_TRUE(kv->Put(&context, request, &response).ok());
    revision = response.header().revision();
  }
  int64_t erase(const std::string& id) {
    grpc::ClientContext context;
    etcd::DeleteRangeRequest request;
    request.set_key(key(id));
    etcd::DeleteRangeResponse response;
    EXPECT_TRUE(kv->DeleteRange(&context, request, &response).ok());
    revision = response.header().revision();
    return response.deleted();
  }
  /// All that was before `revision`.
  void compact() {
    grpc::ClientContext context;
    etcd::CompactionRequest request;
    request.set_revision(revision);
    etcd::CompactionResponse response;
    EXPECT_TRUE(kv->Compact(&context, request, &response).ok());
  }

  bool until(const std::function<bool()>& done) {
    return loop.run_until(done, loop.now() + seconds(20));
  }
  void run_for(milliseconds time) {
    loop.run_until([] { return false; }, loop.now() + time);
  }
  bool reaches(MemberLog& log, bool reachable) {
    return until([&] { return log.membership->status().reachable == reachable; });
  }

  static std::unique_ptr<EtcdProcess> shared;
  const std::unique_ptr<etcd::KV::Stub> kv = etcd::KV::NewStub(
      grpc::CreateChannel(shared->endpoint(), grpc::InsecureChannelCredentials()));
  int64_t revision = 0;  ///< of the last put() or erase()
  io::EventLoop loop;
  MemberLog watcher, worker, other;
};

std::unique_ptr<EtcdProcess> EtcdMembershipTest::shared;

TEST_F(EtcdMembershipTest, AnnouncedChangedWithdrawn) {
  open_both();
  Member member = make_member("p0", 3);
  ASSERT_TRUE(worker.membership->announce(member).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3); }));
  EXPECT_GT(watcher.find("p0")->registration, 0u);
  member.registration = watcher.find("p0")->registration;
  EXPECT_EQ(*watcher.find("p0"), member);
  ASSERT_TRUE(until([&] { return worker.membership->status().announced; }));
  EXPECT_EQ(worker.membership->status().trouble, "");
  member.draining = true;
  ASSERT_TRUE(worker.membership->announce(member).ok());
  ASSERT_TRUE(until([&] { return watcher.lines.size() == 2; }));
  worker.membership->withdraw();
  ASSERT_TRUE(until([&] { return watcher.find("p0") == nullptr; }));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "changed p0#3 draining", "left p0#3 draining"}));
  EXPECT_FALSE(worker.membership->status().announced);
}

TEST_F(EtcdMembershipTest, WhoComesLaterSeesWhoIsThere) {
  open(worker, shared->endpoint());
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return worker.membership->status().announced; }));
  open(watcher, shared->endpoint());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3); }));
  EXPECT_EQ(watcher.membership->status().snapshots, 1u);
}

TEST_F(EtcdMembershipTest, ALivingWorkerStaysADeadOneLeavesAndReturnsAnew) {
  open_both();
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3); }));
  run_for(milliseconds(3'500));  // the lease alone would be over
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3"}));
  worker.membership.reset();
  ASSERT_TRUE(until([&] { return watcher.find("p0") == nullptr; }));
  open(worker, shared->endpoint());
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 4)).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 4); }));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p0#4"}));
}

TEST_F(EtcdMembershipTest, ANewLifeTakesOverAndAnOlderOneIsToldWhyItCannot) {
  open_both();
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return worker.membership->status().announced; }));
  open(other, shared->endpoint());
  ASSERT_TRUE(other.membership->announce(make_member("p0", 4)).ok());
  ASSERT_TRUE(until([&] {
    return other.membership->status().announced &&
           worker.membership->status().trouble.find("generation 4") != std::string::npos;
  }));
  EXPECT_FALSE(worker.membership->status().announced);
  worker.membership.reset();
  run_for(milliseconds(3'000));  // the older lease ends in it and takes nothing along
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p0#4"}));
}

TEST_F(EtcdMembershipTest, AnOutageKeepsTheListAndIsMadeUpFor) {
  Relay relay(shared->port());
  open(watcher, relay.address());
  open(worker, shared->endpoint());
  open(other, shared->endpoint());
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3); }));
  relay.freeze();
  ASSERT_TRUE(reaches(watcher, false));
  EXPECT_NE(watcher.membership->status().trouble.find("last one known"), std::string::npos);
  worker.membership->withdraw();
  ASSERT_TRUE(other.membership->announce(make_member("p1", 1)).ok());
  ASSERT_TRUE(until([&] { return other.sees("p1", 1) && other.find("p0") == nullptr; }));
  EXPECT_TRUE(watcher.sees("p0", 3));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3"}));
  relay.cut();
  relay.thaw();
  ASSERT_TRUE(until([&] { return watcher.lines.size() == 3; }));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p1#1"}));
  EXPECT_EQ(watcher.membership->status().trouble, "");
  // It went on where it was.
  EXPECT_EQ(watcher.membership->status().snapshots, 1u);
}

TEST_F(EtcdMembershipTest, WhatWasCompactedAwayIsReadAnew) {
  Relay relay(shared->port());
  open(watcher, relay.address());
  open(worker, shared->endpoint());
  open(other, shared->endpoint());
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3); }));
  relay.freeze();
  ASSERT_TRUE(reaches(watcher, false));
  worker.membership->withdraw();
  ASSERT_TRUE(other.membership->announce(make_member("p1", 1)).ok());
  ASSERT_TRUE(until([&] { return other.sees("p1", 1) && other.find("p0") == nullptr; }));
  revision = static_cast<int64_t>(other.find("p1")->registration);
  compact();
  relay.cut();
  relay.thaw();
  ASSERT_TRUE(until([&] { return watcher.lines.size() == 3; }));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p1#1"}));
  EXPECT_EQ(watcher.membership->status().snapshots, 2u);
  // And the watch goes on.
  other.membership->withdraw();
  ASSERT_TRUE(until([&] { return watcher.find("p1") == nullptr; }));
}

TEST_F(EtcdMembershipTest, AWorkerThatLostItsLeaseIsListedAgain) {
  Relay relay(shared->port());
  open(watcher, shared->endpoint());
  open(worker, relay.address());
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3); }));
  const uint64_t registration = watcher.find("p0")->registration;
  relay.freeze();
  ASSERT_TRUE(until([&] { return watcher.find("p0") == nullptr; }));
  EXPECT_FALSE(worker.membership->status().reachable);
  EXPECT_TRUE(worker.sees("p0", 3));  // the last known list
  relay.cut();
  relay.thaw();
  ASSERT_TRUE(
      until([&] { return watcher.sees("p0", 3) && worker.membership->status().announced; }));
  EXPECT_GT(watcher.find("p0")->registration, registration);
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p0#3"}));
}

TEST_F(EtcdMembershipTest, AnEntryThatSomebodyDeletedIsWrittenAgain) {
  open_both();
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3) && worker.sees("p0", 3); }));
  erase("p0");
  ASSERT_TRUE(until([&] { return watcher.lines.size() == 3; }));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p0#3"}));
}

TEST_F(EtcdMembershipTest, AnEntryThatIsDeletedBeforeItsWriterHearsOfItIsWrittenAgain) {
  open(worker, shared->endpoint());
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  // The answer to the write and the watch, which tells its end, race in another order each time.
  for (int round = 0; round < 12; ++round) {
    const auto deadline = loop.now() + seconds(20);
    while (erase("p0") == 0) {
      run_for(milliseconds(1));
      ASSERT_LT(loop.now(), deadline) << "not written again in round " << round;
    }
  }
}

TEST_F(EtcdMembershipTest, AnEntryThatWasDeletedAndCompactedAwayIsWrittenAgain) {
  Relay relay(shared->port());
  open(watcher, shared->endpoint());
  open(worker, relay.address());
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(
      until([&] { return watcher.sees("p0", 3) && worker.membership->status().announced; }));
  relay.freeze();
  ASSERT_TRUE(reaches(worker, false));
  erase("p0");
  put("p1", "no JSON");
  compact();
  relay.cut();
  relay.thaw();
  ASSERT_TRUE(until([&] { return worker.membership->status().snapshots == 2; }));
  ASSERT_TRUE(
      until([&] { return watcher.sees("p0", 3) && worker.membership->status().announced; }));
}

TEST_F(EtcdMembershipTest, EntriesThatAreNoWorkersArePassedOverAndCounted) {
  open_both();
  put("x", R"({"id": "other"})");
  put("y", "no JSON");
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3); }));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3"}));
  EXPECT_EQ(watcher.membership->status().ignored_entries, 2u);
}

TEST_F(EtcdMembershipTest, AFrozenAndARestartedEtcdAndOneWithoutItsData) {
  EtcdProcess own;
  open(watcher, own.endpoint());
  open(worker, own.endpoint());
  ASSERT_TRUE(worker.membership->announce(make_member("p0", 3)).ok());
  ASSERT_TRUE(until([&] { return watcher.sees("p0", 3) && worker.sees("p0", 3); }));
  own.freeze();
  ASSERT_TRUE(reaches(watcher, false));
  EXPECT_TRUE(watcher.sees("p0", 3));
  own.thaw();
  ASSERT_TRUE(reaches(watcher, true));
  own.kill();
  ASSERT_TRUE(reaches(watcher, false));
  EXPECT_TRUE(watcher.sees("p0", 3));
  own.start_again(/*keep_data=*/true);
  ASSERT_TRUE(until([&] {
    return watcher.membership->status().reachable && watcher.sees("p0", 3) &&
           worker.membership->status().announced;
  }));
  own.kill();
  own.start_again(/*keep_data=*/false);
  // Its revisions start over: whoever waited for the next one would wait long.
  const size_t lines = watcher.lines.size();
  ASSERT_TRUE(until([&] {
    return watcher.lines.size() >= lines + 2 && watcher.sees("p0", 3) &&
           worker.membership->status().announced;
  }));
}

TEST_F(EtcdMembershipTest, TheNextEndpointIsTried) {
  EtcdOptions options;
  options.endpoints = {"127.0.0.1:1", shared->endpoint()};
  auto opened = open_etcd_membership(options, loop, watcher);
  ASSERT_TRUE(opened.ok());
  watcher.membership = std::move(*opened);
  EXPECT_FALSE(watcher.membership->status().reachable);
  ASSERT_TRUE(reaches(watcher, true));
}

TEST_F(EtcdMembershipTest, OptionsThatCannotWorkAreRefused) {
  const auto refused = [&](const EtcdOptions& options) {
    return !open_etcd_membership(options, loop, watcher).ok();
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({.endpoints = {"a:1"}, .cluster = "a/b"}));
  EXPECT_TRUE(refused({.endpoints = {"a:1"}, .lease = seconds(0)}));
  EXPECT_TRUE(refused({.endpoints = {"a:1"}, .credentials = {.key = "x"}}));
}

TEST(MemberEntry, IsReadBackAndBrokenOnesAreErrors) {
  const Member member = make_member("p0", UINT64_MAX);
  const std::string text = member_text(member);
  const auto back = parse_member_text(text);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, member);
  std::string newer = text;
  newer.insert(1, "\"a field of a later release\": [1],");
  EXPECT_TRUE(parse_member_text(newer).ok());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(parse_member_text(text.substr(0, length)).ok()) << length;
  }
  std::string other_role = text;
  other_role.replace(other_role.find("prefill"), 7, "teacher");
  const auto read = parse_member_text(other_role);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().what.find("teacher"), std::string::npos);
}

}  // namespace
}  // namespace tandem::rpc
