// Goal: tasks run on the owner's thread, once per wake or alarm, in order, and never after forget.
// Method: one list of expectations for the virtual executor, whose time the test moves itself; the
// real loop is only asked what does not depend on how fast this machine is.

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "io/event_loop.h"
#include "io/timers.h"
#include "io/virtual_executor.h"

namespace tandem::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Named final : Task {
  Named(std::string name, std::vector<std::string>& log) : name(std::move(name)), log(log) {}
  void run() override { log.push_back(name); }
  std::string name;
  std::vector<std::string>& log;
};

using Log = std::vector<std::string>;

TEST(VirtualExecutor, RunsWakesInOrderAndEachOnce) {
  VirtualExecutor executor;
  Log log;
  Named a("a", log), b("b", log);
  executor.wake(b);
  executor.wake(a);
  executor.wake(b);
  executor.run_for(milliseconds(0));
  EXPECT_EQ(log, (Log{"b", "a"}));
}

TEST(VirtualExecutor, AWakeDoesNotEatTheAlarm) {
  VirtualExecutor executor;
  Log log;
  Named a("a", log);
  executor.wake_at(a, executor.now() + milliseconds(5));
  executor.wake(a);
  executor.run_for(milliseconds(4));
  EXPECT_EQ(log, (Log{"a"}));
  executor.run_for(milliseconds(1));
  EXPECT_EQ(log, (Log{"a", "a"}));
  executor.run_for(seconds(1));
  EXPECT_EQ(log.size(), 2u);
}

TEST(VirtualExecutor, ALaterAlarmReplacesTheEarlier) {
  VirtualExecutor executor;
  Log log;
  Named a("a", log);
  executor.wake_at(a, executor.now() + milliseconds(5));
  executor.wake_at(a, executor.now() + milliseconds(50));
  executor.run_for(milliseconds(49));
  EXPECT_EQ(log.size(), 0u);
  executor.run_for(milliseconds(1));
  EXPECT_EQ(log.size(), 1u);
}

TEST(VirtualExecutor, ForgottenTasksDoNotRun) {
  VirtualExecutor executor;
  Log log;
  Named a("a", log);
  executor.wake(a);
  executor.wake_at(a, executor.now() + milliseconds(5));
  executor.forget(a);
  executor.run_for(seconds(1));
  EXPECT_EQ(log.size(), 0u);
}

TEST(Timers, CallInTheOrderOfTimeThenOfAsking) {
  VirtualExecutor executor;
  Timers timers(executor);
  Log log;
  timers.after(milliseconds(7), [&] { log.push_back("late"); });
  timers.after(milliseconds(3), [&] { log.push_back("first"); });
  timers.after(milliseconds(3), [&] { log.push_back("second"); });
  executor.run_for(milliseconds(6));
  EXPECT_EQ(log, (Log{"first", "second"}));
  executor.run_for(milliseconds(1));
  EXPECT_EQ(log.back(), "late");
}

TEST(Timers, ACallMayCancelAnotherThatIsDueAndAskForMore) {
  VirtualExecutor executor;
  Timers timers(executor);
  Log log;
  TimerId second;
  timers.after(milliseconds(1), [&] {
    log.push_back("first");
    timers.cancel(second);
    timers.after(milliseconds(0), [&] { log.push_back("third"); });
  });
  second = timers.after(milliseconds(1), [&] { log.push_back("second"); });
  executor.run_for(milliseconds(1));
  EXPECT_EQ(log, (Log{"first", "third"}));
  timers.cancel(second);  // long gone
}

TEST(Timers, AreNotCalledAfterTheirEnd) {
  VirtualExecutor executor;
  bool called = false;
  {
    Timers timers(executor);
    timers.after(milliseconds(1), [&] { called = true; });
  }
  executor.run_for(seconds(1));
  EXPECT_FALSE(called);
}

TEST(EventLoop, IsWokenFromAnotherThreadAndStopped) {
  EventLoop loop;
  std::thread::id ran_on;
  struct Stop final : Task {
    void run() override {
      *ran_on = std::this_thread::get_id();
      loop->stop();
    }
    EventLoop* loop;
    std::thread::id* ran_on;
  } stop;
  stop.loop = &loop;
  stop.ran_on = &ran_on;
  std::thread other([&] { loop.wake(stop); });
  loop.run();
  other.join();
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(EventLoop, TimersComeNotBeforeTheirTime) {
  EventLoop loop;
  Timers timers(loop);
  const Time start = loop.now();
  Time called{};
  timers.after(milliseconds(20), [&] { called = loop.now(); });
  ASSERT_TRUE(loop.run_until([&] { return called != Time{}; }, start + seconds(60)));
  EXPECT_GE(called - start, milliseconds(20));
}

TEST(EventLoop, WhoIsAlwaysDueOrAlwaysWokenLeavesOthersTheirTurn) {
  EventLoop loop;
  struct Busy final : Task {
    void run() override {
      runs += 1;
      if (wakes) {
        loop->wake(*this);
      } else {
        loop->wake_at(*this, loop->now());
      }
    }
    EventLoop* loop;
    bool wakes;
    int runs = 0;
  } due, woken;
  due.loop = woken.loop = &loop;
  due.wakes = false;
  woken.wakes = true;
  loop.wake(due);
  loop.wake(woken);
  ASSERT_TRUE(
      loop.run_until([&] { return due.runs >= 10 && woken.runs >= 10; }, loop.now() + seconds(60)));
}

TEST(EventLoop, GivesUpAtTheDeadline) {
  EventLoop loop;
  EXPECT_FALSE(loop.run_until([] { return false; }, loop.now() + milliseconds(5)));
}

}  // namespace
}  // namespace tandem::io
