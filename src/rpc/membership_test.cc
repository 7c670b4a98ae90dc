// Goal: the list of members follows what is announced, through deaths, returns, outages and
// takeovers. Method: the virtual registry in virtual time, and the static list. The registry over
// etcd is tested beside it, with a real etcd.

#include "rpc/membership.h"

#include <gtest/gtest.h>

#include "io/virtual_executor.h"
#include "rpc/static_membership.h"
#include "rpc/testing/member_log.h"
#include "rpc/virtual_membership.h"

namespace tandem::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Lines = std::vector<std::string>;

class VirtualMembershipTest : public testing::Test {
 protected:
  VirtualMembershipTest() {
    watcher.membership = registry.open("router", watcher);
    worker.membership = registry.open("host-a", worker);
  }
  void announce(MemberLog& log, const Member& member) {
    ASSERT_TRUE(log.membership->announce(member).ok());
    executor.run_for(milliseconds(20));
  }

  io::VirtualExecutor executor;
  VirtualRegistry registry{executor, 1, seconds(5)};
  MemberLog watcher, worker;
};

TEST_F(VirtualMembershipTest, AnnouncedChangedWithdrawn) {
  EXPECT_FALSE(watcher.membership->status().reachable);
  Member member = make_member("p0", 3);
  announce(worker, member);
  EXPECT_TRUE(watcher.membership->status().reachable);
  ASSERT_NE(watcher.find("p0"), nullptr);
  member.registration = watcher.find("p0")->registration;
  EXPECT_EQ(*watcher.find("p0"), member);
  EXPECT_TRUE(worker.membership->status().announced);
  member.draining = true;
  announce(worker, member);
  worker.membership->withdraw();
  executor.run_for(milliseconds(20));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "changed p0#3 draining", "left p0#3 draining"}));
  EXPECT_EQ(worker.lines, watcher.lines);
  EXPECT_FALSE(worker.membership->status().announced);
}

TEST_F(VirtualMembershipTest, ADeadWorkerLeavesAtTheEndOfItsLeaseAndReturnsAnew) {
  announce(worker, make_member("p0", 3));
  worker.membership.reset();
  executor.run_for(milliseconds(4'900));
  EXPECT_TRUE(watcher.sees("p0", 3));
  executor.run_for(milliseconds(200));
  EXPECT_EQ(watcher.find("p0"), nullptr);
  worker.membership = registry.open("host-a", worker);
  announce(worker, make_member("p0", 4));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p0#4"}));
}

TEST_F(VirtualMembershipTest, ANewLifeTakesOverBeforeTheLeaseEnds) {
  announce(worker, make_member("p0", 3));
  worker.membership.reset();
  MemberLog again;
  again.membership = registry.open("host-a", again);
  announce(again, make_member("p0", 4));
  executor.run_for(seconds(20));  // the old lease ends in it and takes nothing along
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p0#4"}));
}

TEST_F(VirtualMembershipTest, AnOlderLifeIsToldWhyItIsNotListed) {
  announce(worker, make_member("p0", 4));
  MemberLog old;
  old.membership = registry.open("host-b", old);
  announce(old, make_member("p0", 3));
  executor.run_for(seconds(1));
  EXPECT_TRUE(watcher.sees("p0", 4));
  EXPECT_FALSE(old.membership->status().announced);
  EXPECT_NE(old.membership->status().trouble.find("generation 4"), std::string::npos);
  old.membership.reset();
  executor.run_for(seconds(20));
  EXPECT_TRUE(watcher.sees("p0", 4));
}

TEST_F(VirtualMembershipTest, AnOutageKeepsTheListAndSaysSo) {
  announce(worker, make_member("p0", 3));
  registry.set_reachable("router", false);
  worker.membership->withdraw();
  executor.run_for(seconds(60));
  EXPECT_TRUE(watcher.sees("p0", 3));
  EXPECT_FALSE(watcher.membership->status().reachable);
  EXPECT_NE(watcher.membership->status().trouble, "");
  registry.set_reachable("router", true);
  executor.run_for(milliseconds(20));
  EXPECT_EQ(watcher.find("p0"), nullptr);
  EXPECT_EQ(watcher.membership->status().trouble, "");
}

TEST_F(VirtualMembershipTest, AWorkerThatWasCutOffReturnsWithANewRegistration) {
  announce(worker, make_member("p0", 3));
  const uint64_t registration = watcher.find("p0")->registration;
  registry.set_reachable("host-a", false);
  executor.run_for(seconds(2));
  registry.set_reachable("host-a", true);  // in time: nobody noticed
  executor.run_for(seconds(20));
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3"}));
  registry.set_reachable("host-a", false);
  executor.run_for(seconds(6));
  EXPECT_EQ(watcher.find("p0"), nullptr);
  registry.set_reachable("host-a", true);
  executor.run_for(seconds(1));
  ASSERT_NE(watcher.find("p0"), nullptr);
  EXPECT_GT(watcher.find("p0")->registration, registration);
  EXPECT_EQ(watcher.lines, (Lines{"joined p0#3", "left p0#3", "joined p0#3"}));
}

TEST(StaticMembership, ListsAllAfterTheStart) {
  io::VirtualExecutor executor;
  const auto members = parse_members("prefill:p0@10.0.0.1:7000,decode:d0@[::1]:7001");
  ASSERT_TRUE(members.ok());
  MemberLog log;
  log.membership = std::move(*make_static_membership(*members, executor, log));
  EXPECT_EQ(log.lines.size(), 0u);
  executor.run_for(milliseconds(1));
  EXPECT_EQ(log.lines, (Lines{"joined d0#0", "joined p0#0"}));
  EXPECT_EQ(log.find("p0")->role, Role::kPrefill);
  EXPECT_EQ(log.find("d0")->address, "[::1]:7001");
  EXPECT_TRUE(log.membership->status().reachable);
}

TEST(StaticMembership, RefusesWhatItCannotRead) {
  for (const char* text : {"p0@host:1", "prefill:p0", "router:p0@host:1", "prefill:@host:1",
                           "prefill:p 0@host:1", "prefill:p0@", ",", "prefill:p0@h:1,,"}) {
    const auto members = parse_members(text);
    ASSERT_FALSE(members.ok()) << text;
    EXPECT_EQ(members.error().code, Code::kInvalidArgument) << text;
  }
  EXPECT_EQ(parse_members("")->size(), 0u);
  io::VirtualExecutor executor;
  MemberLog log;
  const auto twice = *parse_members("prefill:x@h:1,decode:x@h:2");
  EXPECT_FALSE(make_static_membership(twice, executor, log).ok());
}

TEST(Member, FieldsHaveLimits) {
  EXPECT_TRUE(check_member(make_member("p0", 1)).ok());
  const auto refused = [](auto change) {
    Member member = make_member("p0", 1);
    change(member);
    return !check_member(member).ok();
  };
  EXPECT_TRUE(refused([](Member& m) { m.id = std::string(129, 'x'); }));
  EXPECT_TRUE(refused([](Member& m) { m.id = "a/b"; }));
  EXPECT_TRUE(refused([](Member& m) { m.address = ""; }));
  EXPECT_TRUE(refused([](Member& m) { m.address = "host\xff:1"; }));
  EXPECT_TRUE(refused([](Member& m) { m.role = static_cast<Role>(3); }));
  EXPECT_TRUE(refused([](Member& m) { m.data_addresses.resize(1025); }));
  EXPECT_TRUE(refused([](Member& m) { m.data_addresses[0].resize(257); }));
  EXPECT_TRUE(refused([](Member& m) { m.layout.resize((64 << 10) + 1); }));
}

}  // namespace
}  // namespace tandem::rpc
