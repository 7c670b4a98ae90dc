// Goal: calls are made on the executor's thread, each once, in order, never within post() and never
// after the box is gone. Method: a virtual executor for the order; a real loop and many threads for
// the rest.
#include "io/post_box.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "io/event_loop.h"
#include "io/virtual_executor.h"

namespace tandem::io {
namespace {

using std::chrono::seconds;

TEST(PostBox, CallsLaterAndInOrder) {
  VirtualExecutor executor;
  PostBox box(executor);
  std::vector<int> calls;
  for (int i = 0; i < 3; ++i) box.post([&calls, i] { calls.push_back(i); });
  EXPECT_TRUE(calls.empty());
  executor.run_for(seconds(1));
  EXPECT_EQ(calls, (std::vector{0, 1, 2}));
}

TEST(PostBox, WhatACallPostsComesAfterTheOthers) {
  VirtualExecutor executor;
  PostBox box(executor);
  std::vector<int> calls;
  box.post([&] {
    calls.push_back(0);
    box.post([&] { calls.push_back(2); });
  });
  box.post([&] { calls.push_back(1); });
  executor.run_for(seconds(1));
  EXPECT_EQ(calls, (std::vector{0, 1, 2}));
}

TEST(PostBox, WhatWaitsAtItsEndIsNotCalled) {
  VirtualExecutor executor;
  bool was_called = false;
  {
    PostBox box(executor);
    box.post([&] { was_called = true; });
  }
  executor.run_for(seconds(1));
  EXPECT_FALSE(was_called);
}

TEST(PostBox, TakesCallsOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 500;
  EventLoop loop;
  PostBox box(loop);
  std::vector<std::vector<int>> seen(kThreads);
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        box.post([&, t, i] {
          seen[t].push_back(i);
          ++count;
        });
      }
    });
  }
  EXPECT_TRUE(loop.run_until([&] { return count == kThreads * kCalls; }, loop.now() + seconds(60)));
  for (std::thread& thread : threads) thread.join();
  std::vector<int> expected(kCalls);
  for (int i = 0; i < kCalls; ++i) expected[i] = i;
  for (const auto& calls : seen) EXPECT_EQ(calls, expected);
}

}  // namespace
}  // namespace tandem::io
