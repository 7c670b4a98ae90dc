#include "tests/ranks/serve_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "tests/ranks/test_models.h"

namespace tandem::ranks {
namespace {

/// Keeps what engines say; cancels on the first token.
class Answers final : public engine::EventSink {
 public:
  Answers(size_t count, const std::vector<size_t>& cancelled)
      : answers_(count), cancelled_(cancelled), left_(count) {}

  void on_events(std::span<engine::Event> events) override {
    const std::lock_guard lock(mutex_);
    for (engine::Event& event : events) {
      Answer& answer = answers_[event.id.value];
      for (const engine::GeneratedToken& token : event.tokens) {
        answer.tokens.push_back(token.token);
        answer.logprobs.push_back(token.logprob);
      }
      if (answer.tokens.size() == 1 && std::ranges::count(cancelled_, event.id.value) == 1) {
        to_cancel_.push_back(event.id);
      }
      if (!event.finish) continue;
      answer.reason = *event.finish;
      if (event.error) answer.error = event.error->what;
      --left_;
    }
    changed_.notify_all();
  }

  /// An answer as well: an error without a token.
  void refuse(RequestId id, const Error& error) {
    engine::Event event{.id = id};
    event.finish = engine::FinishReason::kError;
    event.error = error;
    on_events({&event, 1});
  }

  std::vector<Answer> wait(engine::EngineClient& client) {
    std::unique_lock lock(mutex_);
    while (left_ > 0) {
      const bool in_time = changed_.wait_for(lock, std::chrono::minutes(4),
                                             [&] { return left_ == 0 || !to_cancel_.empty(); });
      TANDEM_CHECK(in_time, "requests hang");
      std::vector<RequestId> ids;
      std::swap(ids, to_cancel_);
      lock.unlock();
      for (RequestId id : ids) client.cancel(id);
      lock.lock();
    }
    return std::move(answers_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Answer> answers_;
  const std::vector<size_t> cancelled_;
  std::vector<RequestId> to_cancel_;
  size_t left_;
};

}  // namespace

std::vector<engine::Request> mixed_requests(int count, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  std::vector<engine::Request> requests;
  for (int i = 0; i < count; ++i) {
    const int length = i % 5 == 0 ? 60 + below(60) : 1 + below(30);
    engine::Request request{
        .id = RequestId{static_cast<uint64_t>(i)},
        .prompt = random_texts({length}, vocabulary, random()).front(),
        .tokens_max = static_cast<uint32_t>(1 + below(24)),
    };
    request.sampling.temperature = i % 3 == 0 ? 0.0f : 0.8f;
    request.sampling.top_k = i % 4 == 0 ? 20 : 0;
    request.sampling.seed = random();
    request.sampling.logprobs_count = 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Answer> serve_all(engine::EngineClient& client,
                              const std::vector<engine::Request>& requests,
                              const std::vector<size_t>& cancelled, uint64_t seed) {
  std::mt19937_64 random(seed);
  Answers answers(requests.size(), cancelled);
  std::thread submitter([&] {
    for (const engine::Request& request : requests) {
      const auto accepted = client.submit(request, answers);
      if (!accepted.ok()) answers.refuse(request.id, accepted.error());
      if (random() % 3 != 0) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));
    }
  });
  auto result = answers.wait(client);
  submitter.join();
  return result;
}

engine::RankSet::Options set_options(const ScoredModel& model, const model::Layout& layout) {
  engine::RankSet::Options options{.config = model.config, .layout = layout};
  options.limits = {.model_length_max = 256,
                    .sequences_max = 4,
                    .step_tokens_max = 40,  // long prompts come in chunks
                    .page_tokens = 16,
                    .pages_total = 24,  // too few for four long sequences
                    .vocabulary_size = static_cast<uint32_t>(model.config.vocab_size),
                    .tokenizer_size = static_cast<uint32_t>(model.config.vocab_size)};
  options.compute = model.compute;
  options.make_device = []() -> Result<std::unique_ptr<Device>> {
    return std::unique_ptr<Device>(TANDEM_TRY(cpu::CpuDevice::create({.threads_count = 1})));
  };
  options.make_source = model.make_source;
  return options;
}

ThreadRanks ThreadRanks::start(const ScoredModel& model, const model::Layout& layout,
                               const engine::BalanceLimits& balance) {
  engine::RankSet::Options options = set_options(model, layout);
  options.balance = balance;
  return start(options);
}

ThreadRanks ThreadRanks::start(const engine::RankSet::Options& options) {
  const model::Layout& layout = options.layout;
  ThreadRanks ranks;
  ranks.group =
      comm::ThreadGroup::create({.ranks_count = layout.ranks_count(),
                                 .heap_bytes = engine::RankSet::heap_bytes(options).value(),
                                 .inseparable_ranks = layout.tensor_parallel})
          .value();
  ranks.left = std::vector<std::atomic<bool>>(static_cast<size_t>(layout.ranks_count()));
  std::vector<engine::RankSet::Member> members;
  for (int rank = 0; rank < layout.ranks_count(); ++rank) {
    comm::ThreadGroup* group = ranks.group.get();
    std::atomic<int>* regroups = ranks.regroups.get();
    std::atomic<bool>* left = &ranks.left[static_cast<size_t>(rank)];
    members.push_back({.rank = rank,
                       .heap = &group->heap(rank),
                       .leave =
                           [=] {
                             group->leave(rank);
                             *left = true;
                           },
                       .fail =
                           [=](const std::string& reason) {
                             group->fail(rank, reason);
                             *left = true;
                           },
                       .regroup =
                           [=](const std::string& brings) {
                             ++*regroups;
                             return group->regroup(rank, brings);
                           }});
  }
  ranks.set = engine::RankSet::create(options, std::move(members)).value();
  return ranks;
}

void expect_same(const std::vector<Answer>& answers, const std::vector<Answer>& expected,
                 const std::vector<size_t>& cancelled) {
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const bool may_be_cut = std::ranges::count(cancelled, i) == 1;
    const size_t count = may_be_cut ? answers[i].tokens.size() : expected[i].tokens.size();
    ASSERT_EQ(answers[i].tokens.size(), count) << answers[i].error;
    ASSERT_LE(count, expected[i].tokens.size());
    for (size_t t = 0; t < count; ++t) {
      EXPECT_EQ(answers[i].tokens[t], expected[i].tokens[t]);
      EXPECT_EQ(answers[i].logprobs[t], expected[i].logprobs[t]);
    }
    if (may_be_cut) continue;
    EXPECT_EQ(answers[i].reason, expected[i].reason);
  }
}

}  // namespace tandem::ranks
