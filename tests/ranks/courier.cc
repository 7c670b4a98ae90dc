#include "tests/ranks/courier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem::ranks {

/// One import, and the export that serves it.
struct Courier::Job {
  size_t group = 0;
  engine::ImportId import;
  std::vector<TokenId> tokens;
  kv::TokenRange range;
  std::vector<PageId> target_pages;
  RequestId request{};  // of the export
  std::optional<kv::TransferPlan> plan{};
  bool is_admitted = false;
  std::vector<PageId> source_pages{};  // from the one that holds range.first on
  uint32_t cached_tokens = 0;
  struct Part {
    uint64_t step;
    uint32_t tokens_end;
  };
  std::vector<Part> parts{};
  std::vector<uint32_t> sent{};  // slices, by link and layer
  bool is_done = false;

  kv::TransferPlan::Pages pages() const { return {source_pages, target_pages}; }
};

class Courier::End final : public engine::KvSource {
 public:
  End(Courier& courier, size_t group) : courier_(courier), group_(group) {}
  void reserve(const engine::KvReservation& r) override {
    // On the heap: gcc 12 with sanitizers takes the empty plan of a moved local for uninitialized.
    const auto job =
        std::make_shared<const Job>(Job{.group = group_,
                                        .import = r.import,
                                        .tokens = {r.tokens.begin(), r.tokens.end()},
                                        .range = r.range,
                                        .target_pages = {r.pages.begin(), r.pages.end()}});
    courier_.note([this, job] { courier_.begin(*job); });
  }
  void abandon(engine::ImportId) override { ADD_FAILURE() << "nothing is cancelled"; }

 private:
  Courier& courier_;
  const size_t group_;
};

Courier::Courier(int target_groups) {
  for (int i = 0; i < target_groups; ++i) {
    ends_.push_back(std::make_unique<End>(*this, static_cast<size_t>(i)));
  }
  thread_ = std::thread([this] { loop(); });
}

Courier::~Courier() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

engine::KvSource* Courier::source_of(int group) {
  return ends_[static_cast<size_t>(group)].get();
}

void Courier::connect(const engine::RankSet& source, const engine::RankSet& target) {
  source_ = &source.groups().front();
  targets_ = target.groups();
  progress_.resize(source_->ranks.size());
}

void Courier::note(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  notes_.push_back(std::move(call));
  changed_.notify_all();
}

void Courier::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_stopping_ || !notes_.empty(); });
    if (notes_.empty()) return;
    const auto call = std::move(notes_.front());
    notes_.pop_front();
    lock.unlock();
    call();
    lock.lock();
  }
}

void Courier::begin(Job job) {
  const engine::RankSet::Group& target = targets_[job.group];
  job.request = RequestId{1'000'000 + exports_};
  job.plan =
      kv::TransferPlan::create(source_->layout, target.layout,
                               {.tokens = job.range, .spread = static_cast<uint32_t>(exports_++)})
          .value();
  job.sent.resize(job.plan->links().size() * job.plan->layers());
  jobs_.push_back(std::move(job));
  const auto submitted = source_->engine->submit(
      {.id = jobs_.back().request, .prompt = jobs_.back().tokens, .kv_way = engine::KvWay::kExport},
      *this);
  ASSERT_TRUE(submitted.ok()) << submitted.error().what;
}

Courier::Job& Courier::job_of(RequestId request) {
  const auto found =
      std::ranges::find_if(jobs_, [&](const Job& job) { return job.request == request; });
  TANDEM_CHECK(found != jobs_.end(), "an export that nobody asked for");
  return *found;
}

void Courier::on_admitted(RequestId request, uint32_t cached_tokens,
                          std::span<const PageId> pages) {
  note([this, request, cached_tokens, all = std::vector(pages.begin(), pages.end())] {
    Job& job = job_of(request);
    const kv::PageRange used = job.plan->source_pages();
    const auto first = all.begin() + used.first;
    job.source_pages.assign(first, first + used.count());
    job.cached_tokens = cached_tokens;
    job.is_admitted = true;
    advance_all();
  });
}

void Courier::on_scheduled(uint64_t step, std::span<const engine::ScheduledTokens> parts) {
  std::vector<std::pair<RequestId, uint32_t>> ends;
  for (const auto& part : parts) ends.emplace_back(part.request, part.tokens.end);
  note([this, step, ends = std::move(ends)] {
    for (const auto& [request, end] : ends) job_of(request).parts.push_back({step, end});
  });
}

void Courier::on_layer_progress(int rank, uint64_t step, uint32_t layer) {
  note([this, rank, step, layer] {
    progress_[static_cast<size_t>(rank)] = {step, layer};
    advance_all();
  });
}

void Courier::on_events(std::span<engine::Event> events) {
  for (const engine::Event& event : events) {
    EXPECT_EQ(event.finish, engine::FinishReason::kLength);
  }
}

void Courier::advance_all() {
  for (Job& job : jobs_) {
    if (job.is_admitted) advance(job);
  }
  std::erase_if(jobs_, [](const Job& job) { return job.is_done; });
}

/// Tokens whose K and V of this layer are in the source's pages.
uint32_t Courier::computed(const Job& job, uint32_t source_rank, uint32_t layer) const {
  const Progress& at = progress_[source_rank];
  uint32_t tokens = job.cached_tokens;
  for (const Job::Part& part : job.parts) {
    const bool is_done = part.step < at.step || (part.step == at.step && layer <= at.layer);
    if (is_done) tokens = part.tokens_end;
  }
  return tokens;
}

void Courier::advance(Job& job) {
  const kv::TransferPlan& plan = *job.plan;
  bool is_complete = true;
  for (size_t i = 0; i < plan.links().size(); ++i) {
    const kv::PlanLink& link = plan.links()[i];
    for (uint32_t layer = 0; layer < plan.layers(); ++layer) {
      uint32_t& sent = job.sent[i * plan.layers() + layer];
      const uint32_t ready = plan.slices_ready(computed(job, link.source_rank, layer));
      while (sent < ready) send(job, link, layer, sent++);
      is_complete = is_complete && sent == plan.slices_count();
    }
  }
  if (!is_complete) return;
  expect_proof(job);
  source_->engine->delivered(job.request);
  targets_[job.group].engine->arrived(job.import);
  targets_[job.group].engine->drained(job.import);
  ++arrivals_;
  job.is_done = true;
}

void Courier::send(const Job& job, const kv::PlanLink& link, uint32_t layer, uint32_t slice) {
  const engine::RankSet::Group& target = targets_[job.group];
  for (uint32_t pool = 2 * layer; pool < 2 * layer + 2; ++pool) {
    const std::byte* from = source_->ranks[link.source_rank]->memory().data() +
                            pool * source_->layout.pool_bytes(link.source_rank);
    std::byte* to = target.ranks[link.target_rank]->memory().data() +
                    pool * target.layout.pool_bytes(link.target_rank);
    job.plan->for_each_copy(link, slice, job.pages(), [&](const kv::PageCopy& copy) {
      std::memcpy(to + copy.target_offset, from + copy.source_offset, copy.bytes);
    });
  }
}

/// Both ranks of each link agree on what every slice holds.
void Courier::expect_proof(const Job& job) {
  const engine::RankSet::Group& target = targets_[job.group];
  std::vector<uint64_t> sent(job.plan->slices_count());
  std::vector<uint64_t> found(sent.size());
  for (const kv::PlanLink& link : job.plan->links()) {
    for (uint32_t pool = 0; pool < 2 * job.plan->layers(); ++pool) {
      engine::KvRank::Slices slices{.layer = pool / 2,
                                    .is_value = pool % 2 == 1,
                                    .pages = job.source_pages,
                                    .first_head = link.source_head,
                                    .heads_count = link.heads.count(),
                                    .tokens = job.range,
                                    .slice_tokens = target.layout.page_tokens};
      EXPECT_TRUE(source_->ranks[link.source_rank]->digest(slices, sent).ok());
      slices.pages = job.target_pages;
      slices.first_head = link.target_head;
      EXPECT_TRUE(target.ranks[link.target_rank]->digest(slices, found).ok());
      EXPECT_EQ(sent, found) << "layer " << pool / 2;
    }
  }
}

}  // namespace tandem::ranks
