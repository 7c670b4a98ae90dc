// Goal: the engine's thread keeps the contract of EngineClient: limits of the queue, cancels from
// other threads at any moment, draining, ending, and no work while nothing lives.
// Method: the real thread over a model of hashes (testing/hash_runner.h) that can be held in a
// step; several clients at once, so that the thread sanitizer sees every way in and out.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <map>
#include <random>
#include <thread>

#include "engine/testing/hash_runner.h"

namespace tandem::engine {
namespace {

using std::chrono::milliseconds;
using testing::HashRunner;

constexpr Limits kLimits{.model_length_max = 64,
                         .sequences_max = 4,
                         .step_tokens_max = 16,
                         .queue_requests_max = 8,
                         .queue_tokens_max = 100,
                         .page_tokens = 4,
                         .pages_total = 24,
                         .vocabulary_size = 100,
                         .tokenizer_size = 100,
                         .stall_ms_max = 50};

/// Remembers how requests ended; waiting for that is for the test's threads.
class Endings final : public EventSink {
 public:
  void on_events(std::span<Event> events) override {
    const std::lock_guard lock(mutex_);
    for (const Event& event : events) {
      EXPECT_FALSE(endings_.contains(event.id.value)) << "an event after the last";
      if (event.finish) endings_[event.id.value] = event;
    }
    changed_.notify_all();
  }
  /// The last event of a request.
  Event wait(uint64_t id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return endings_.contains(id); }))
        << "request " << id << " never ends";
    return endings_[id];
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return endings_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Event> endings_;
};

class EngineTest : public ::testing::Test {
 protected:
  void TearDown() override { release(); }  // or the engine could not end
  void start() { engine_ = Engine::create({.limits = kLimits}, runner_).value(); }

  /// Steps wait in the model until release().
  /// The next step, which is not there yet, waits for release().
  void hold() {
    in_step_ = released_ = false;
    runner_.observe = [this](auto) {
      std::unique_lock lock(mutex_);
      in_step_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return released_; });
    };
  }
  void await_step() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return in_step_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  static Request request(uint64_t id, size_t prompt_tokens = 5, uint32_t tokens_max = 9) {
    return {.id = {id}, .prompt = std::vector<TokenId>(prompt_tokens, 7), .tokens_max = tokens_max};
  }
  Code refusal(Request request) {
    const Result<void> submitted = engine_->submit(std::move(request), endings_);
    EXPECT_FALSE(submitted.ok()) << "it was accepted";
    return submitted.ok() ? Code::kInternal : submitted.error().code;
  }
  /// Waits for a status, which follows the events by a moment.
  template <typename Holds>
  bool await_status(Holds holds) {
    for (int i = 0; i < 6000; ++i) {
      if (holds(engine_->status())) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool in_step_ = false;
  bool released_ = false;
  Endings endings_;
  HashRunner runner_{kLimits};
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, RunsARequestAndReportsIt) {
  start();
  EXPECT_TRUE(engine_->status().ready);
  ASSERT_TRUE(engine_->submit(request(1), endings_).ok());
  const Event last = endings_.wait(1);
  EXPECT_EQ(*last.finish, FinishReason::kLength);
  EXPECT_GE(last.timing.queue_us, 0);
  EXPECT_TRUE(await_status([](const EngineStatus& s) { return s.requests_running == 0; }));
  const EngineStatus status = engine_->status();
  EXPECT_EQ(status.requests_waiting, 0u);
  EXPECT_EQ(status.pages_used, 0u);
  EXPECT_EQ(status.pages_total, kLimits.pages_total);
  EXPECT_EQ(status.prompt_tokens, 5u);
  EXPECT_EQ(status.generated_tokens, 9u);
  EXPECT_EQ(status.prefix_query_tokens, 5u);
}

TEST_F(EngineTest, BoundsItsQueueByRequestsAndByTokens) {
  hold();
  start();
  ASSERT_TRUE(engine_->submit(request(0), endings_).ok());
  await_step();
  // Until its first step is over the request in the model counts as waiting, too.
  uint64_t id = 1;
  for (; id <= 3; ++id) ASSERT_TRUE(engine_->submit(request(id, 30), endings_).ok());
  EXPECT_EQ(refusal(request(id, 6)), Code::kResourceExhausted) << "101 tokens";
  for (; id <= 7; ++id) ASSERT_TRUE(engine_->submit(request(id, 1), endings_).ok());
  EXPECT_EQ(engine_->status().requests_waiting, 8u);
  EXPECT_EQ(refusal(request(id, 1)), Code::kResourceExhausted) << "9 requests";
  EXPECT_EQ(refusal(request(id, 64)), Code::kInvalidArgument) << "no room for an answer";
  release();
  for (uint64_t i = 0; i < id; ++i) endings_.wait(i);
  EXPECT_TRUE(await_status([](const EngineStatus& s) { return s.requests_waiting == 0; }));
  EXPECT_TRUE(engine_->submit(request(id, 60), endings_).ok()) << "there is room again";
  endings_.wait(id);
}

TEST_F(EngineTest, AStalledStepMakesItNotReady) {
  hold();
  start();
  ASSERT_TRUE(engine_->submit(request(0), endings_).ok());
  await_step();
  EXPECT_TRUE(await_status([](const EngineStatus& s) { return !s.ready; }));
  EXPECT_NE(engine_->status().reason.find("rank 0"), std::string::npos);
  release();
  endings_.wait(0);
  EXPECT_TRUE(await_status([](const EngineStatus& s) { return s.ready; }));
}

TEST_F(EngineTest, CancelsFromOtherThreadsAtAnyMoment) {
  start();
  constexpr uint64_t kClients = 4;
  constexpr uint64_t kRequestsEach = 250;
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (uint64_t i = 0; i < kRequestsEach; ++i) {
        const uint64_t id = client * kRequestsEach + i;
        while (!engine_->submit(request(id, 1 + random() % 40, 1 + random() % 20), endings_).ok()) {
          std::this_thread::sleep_for(milliseconds(1));
        }
        if (random() % 2 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        }
        if (random() % 4 != 0) engine_->cancel({id});
        if (random() % 8 == 0) engine_->cancel({random() % (kClients * kRequestsEach)});
        static_cast<void>(engine_->status());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  size_t cancelled = 0;
  for (uint64_t id = 0; id < kClients * kRequestsEach; ++id) {
    const Event last = endings_.wait(id);
    EXPECT_NE(*last.finish, FinishReason::kError);
    cancelled += *last.finish == FinishReason::kCancelled ? 1 : 0;
  }
  EXPECT_GT(cancelled, 10u) << "some cancels came in time";
  EXPECT_LT(cancelled, kClients * kRequestsEach) << "some requests ended by themselves";
  EXPECT_TRUE(await_status([](const EngineStatus& s) {
    return s.requests_running == 0 && s.requests_waiting == 0 && s.pages_used == 0;
  }));
  EXPECT_TRUE(runner_.findings.empty()) << runner_.findings.front();
}

TEST_F(EngineTest, CancellationsOfNobodyFillNoMemory) {
  hold();
  start();
  ASSERT_TRUE(engine_->submit(request(0), endings_).ok());
  await_step();
  ASSERT_TRUE(engine_->submit(request(1, 5, 50), endings_).ok());
  for (uint64_t id = 1000; id < 101'000; ++id) engine_->cancel(RequestId{id});
  engine_->cancel(RequestId{1});  // no room, until the engine has looked at the others
  release();
  EXPECT_EQ(*endings_.wait(1).finish, FinishReason::kLength);
  hold();
  ASSERT_TRUE(engine_->submit(request(2, 5, 50), endings_).ok());
  await_step();
  engine_->cancel(RequestId{2});
  release();
  EXPECT_EQ(*endings_.wait(2).finish, FinishReason::kCancelled);
}

TEST_F(EngineTest, EndingTellsEverybody) {
  hold();
  start();
  for (uint64_t id = 0; id < 8; ++id) {
    ASSERT_TRUE(engine_->submit(request(id, 5, 50), endings_).ok());
  }
  await_step();
  std::thread ending([this] { engine_.reset(); });
  release();
  ending.join();
  EXPECT_EQ(endings_.count(), 8u);
  for (uint64_t id = 0; id < 8; ++id) {
    const Event last = endings_.wait(id);
    if (*last.finish != FinishReason::kError) continue;  // it was quicker
    EXPECT_EQ(last.error->code, Code::kUnavailable);
  }
}

/// Hands the reservation over to the test's thread.
class Source final : public KvSource {
 public:
  void reserve(const KvReservation& r) override {
    const std::lock_guard lock(mutex_);
    import_ = r.import;
    pages_.assign(r.pages.begin(), r.pages.end());
    changed_.notify_all();
  }
  void abandon(ImportId) override {}
  ImportId wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return import_ != ImportId{}; });
    return import_;
  }
  const std::vector<PageId>& pages() const { return pages_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  ImportId import_;
  std::vector<PageId> pages_;
};

TEST_F(EngineTest, SleepsWhileARequestAwaitsKvAndWakesWhenItArrives) {
  Limits limits = kLimits;
  limits.leases_max = 1;
  Source source;
  engine_ = Engine::create({.limits = limits, .source = &source}, runner_).value();
  Request import = request(1);
  import.kv_way = KvWay::kImport;
  const std::vector<TokenId> prompt = import.prompt;
  ASSERT_TRUE(engine_->submit(std::move(import), endings_).ok());
  const ImportId id = source.wait();
  EXPECT_TRUE(await_status([](const EngineStatus& s) { return s.requests_awaiting_kv == 1; }));
  const std::clock_t before = std::clock();  // of all threads of this process
  std::this_thread::sleep_for(milliseconds(300));
  const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used_s, 0.03) << "a spinning thread would use 0.3 s";
  EXPECT_TRUE(engine_->status().ready);

  uint64_t state = 0;
  for (size_t position = 0; position + 1 < prompt.size(); ++position) {
    state = testing::HashModel::after(state, prompt[position]);
    const size_t page = source.pages()[position / kLimits.page_tokens].value;
    runner_.slots()[page * kLimits.page_tokens + position % kLimits.page_tokens] = state;
  }
  engine_->arrived(id);
  EXPECT_EQ(*endings_.wait(1).finish, FinishReason::kLength);
  EXPECT_TRUE(await_status([](const EngineStatus& s) { return s.requests_running == 0; }));
  EXPECT_EQ(engine_->status().imported_tokens, prompt.size() - 1);
  EXPECT_EQ(engine_->status().pages_leased, 2u);
  engine_->drained(id);
  EXPECT_TRUE(await_status([](const EngineStatus& s) { return s.pages_used == 0; }));
  EXPECT_TRUE(runner_.findings.empty()) << runner_.findings.front();
}

TEST_F(EngineTest, SleepsWhileNothingLives) {
  start();
  ASSERT_TRUE(engine_->submit(request(0), endings_).ok());
  endings_.wait(0);
  ASSERT_TRUE(await_status([](const EngineStatus& s) { return s.requests_running == 0; }));
  const std::clock_t before = std::clock();  // of all threads of this process
  std::this_thread::sleep_for(milliseconds(300));
  const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used_s, 0.03) << "a spinning thread would use 0.3 s";
}

}  // namespace
}  // namespace tandem::engine
