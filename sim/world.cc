#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "kv/sidecar.h"

namespace tandem::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr transfer::LoopbackFaults kNoFaults{.delay_min = std::chrono::microseconds(1),
                                             .delay_max = std::chrono::microseconds(300)};
/// What a request may take at worst: three hand-offs that end at their deadline of 60 s each.
constexpr auto kRequestMax = seconds(400);
/// The longest timers: a lost path (30 s), a lease, a connection that is dialled again.
constexpr auto kSettleMax = seconds(180);

/// Records that the busiest rank of a prefill worker makes for the longest prompt.
uint64_t staging_needed(const WorkerSpec& source, const WorkerSpec& target) {
  const auto plan = kv::TransferPlan::create(source.layout, target.layout,
                                             {.tokens = {0, source.limits.model_length_max - 1}})
                        .value();
  std::vector<uint64_t> records(source.layout.ranks_count());
  for (const kv::PlanLink& link : plan.links()) {
    records[link.source_rank] += plan.layers() * kv::SidecarMap(plan).block_records();
  }
  return std::ranges::max(records);
}

}  // namespace

World::World(uint64_t seed, bool prints_trace)
    : prints_trace_(prints_trace),
      draw_(seed),
      place_(seed, [this](const std::string& finding) { fail(finding); }) {
  is_calm_ = draw_.chance(0.15);
  place_.fabric.set_faults(kNoFaults);
  draw_cluster();
  clients_ = std::make_unique<Clients>(model_, place_.find);
  clients_->may_fail = !is_calm_;
  clients_->trace = [this](const std::string& what) { note(what); };
}

World::~World() {
  workers_.clear();
  router_.reset();
}

std::optional<std::string> World::run() {
  start_router();
  for (const WorkerSpec& spec : specs_) start(spec.name);
  run_until([this] { return router_->router().status().ready; }, seconds(30));
  run_until([] { return false; }, seconds(2));
  if (!router_->router().status().ready) {
    fail("the router never is ready: " + router_->router().status().reason);
  }
  const auto window = seconds(draw_.between(2, 20));
  for (uint64_t count = draw_.between(10, 60); count > 0; --count) {
    ask(Span(static_cast<int64_t>(draw_.below(static_cast<uint64_t>(Span(window).count())))));
  }
  if (!is_calm_) draw_faults(window);
  run_until([this] { return faults_open_ == 0 && asks_open_ == 0; }, seconds(200));
  note("all faults are over");
  run_until([this] { return clients_->open_count() == 0; }, kRequestMax);
  if (clients_->open_count() > 0) fail(clients_->open());
  settle("when all requests have ended");

  // Dialled again after at most 6 s, listed anew within a lease.
  run_until([] { return false; }, seconds(15));
  clients_->may_fail = false;
  for (int i = 0; i < 6; ++i) ask(milliseconds(10 * i));
  run_until([this] { return asks_open_ == 0 && clients_->open_count() == 0; }, seconds(60));
  if (clients_->open_count() > 0) fail("in the last round " + clients_->open());
  settle("after the last round");
  for (const auto& [name, worker] : workers_) note(worker->counters());
  note(fmt::format("{} requests, {} failed", clients_->count(), clients_->failed_count()));
  return finding_;
}

// The cluster.

void World::draw_cluster() {
  model_.model_length_max = static_cast<uint32_t>(draw_.between(40, 120));
  model_.vocabulary_size = model_.tokenizer_size = 40;
  for (int i = 0; i < 3; ++i) {
    auto& prefix = prefixes_.emplace_back(draw_.below(model_.model_length_max / 2));
    for (TokenId& token : prefix) token = static_cast<TokenId>(draw_.below(40));
  }
  const uint64_t prefills = draw_.between(1, 3);
  const uint64_t decodes = draw_.between(1, 2);
  for (size_t i = 0; i < prefills; ++i) specs_.push_back(draw_worker(rpc::Role::kPrefill, i));
  for (size_t i = 0; i < decodes; ++i) specs_.push_back(draw_worker(rpc::Role::kDecode, i));
  for (WorkerSpec& spec : specs_) {
    for (uint32_t rank = 0; rank < spec.layout.ranks_count(); ++rank) {
      spec.sidecar_records =
          std::max(spec.sidecar_records, kv::sidecar_records_max(spec.layout, rank));
    }
    if (spec.role == rpc::Role::kPrefill && draw_.chance(0.5)) spec.sidecar_records = 0;
    // The longest hand-off always has room, perhaps none beside it.
    for (const WorkerSpec& target : specs_) {
      if (spec.role == rpc::Role::kDecode || target.role == rpc::Role::kPrefill) continue;
      spec.sidecar_records = std::max(spec.sidecar_records, staging_needed(spec, target));
    }
  }
}

WorkerSpec World::draw_worker(rpc::Role role, size_t number) {
  const bool decodes = role == rpc::Role::kDecode;
  WorkerSpec spec;
  spec.name = fmt::format("{}{}", decodes ? "d" : "p", number);
  spec.role = role;
  spec.groups = decodes ? static_cast<uint32_t>(draw_.between(1, 3)) : 1;
  const uint32_t ranks = decodes ? draw_.one_of({1u, 2u}) : draw_.one_of({1u, 2u, 4u});
  const uint32_t page_tokens = draw_.one_of({2u, 4u, 8u, 16u});
  const uint32_t pages_needed = (model_.model_length_max + page_tokens - 1) / page_tokens;
  engine::Limits& limits = spec.limits;
  limits = model_;
  limits.page_tokens = page_tokens;
  // From just one sequence of full length up.
  limits.pages_total = pages_needed * static_cast<uint32_t>(draw_.between(1, 6)) + 2;
  limits.sequences_max = static_cast<uint32_t>(draw_.between(1, 12));
  limits.step_tokens_max =
      limits.sequences_max + static_cast<uint32_t>(draw_.one_of({0u, 7u, 30u, 100u}));
  limits.leases_max = static_cast<uint32_t>(draw_.between(2, 20));
  limits.quarantine_pages_max = std::max(limits.pages_total / 4, 1u);
  limits.prefix_caching = draw_.chance(0.8);
  spec.layout = {.element = kv::KvElement::kF32,
                 .layers = 3,
                 .kv_heads = 4,
                 .head_dim = 2,
                 .page_tokens = page_tokens,
                 .pages_total = limits.pages_total,
                 .rank_heads = kv::KvLayout::even_heads(4, ranks)};
  using cluster::handoff::Policy;
  spec.handoffs.protocol.policy = draw_.one_of({Policy::kFail, Policy::kRecompute, Policy::kRetry});
  spec.transfers.stall_max = draw_.one_of<transfer::Duration>({seconds(2), seconds(30)});
  spec.step_max = std::chrono::microseconds(draw_.one_of({500, 4'000, 20'000}));
  return spec;
}

void World::start(const std::string& name) {
  const auto spec = std::ranges::find(specs_, name, &WorkerSpec::name);
  workers_[name] =
      std::make_unique<WorkerProcess>(place_, *spec, ++generations_[name], draw_.seed());
  note(fmt::format("{} starts: {} groups, {} ranks, {} pages of {}", name, spec->groups,
                   spec->layout.ranks_count(), spec->limits.pages_total, spec->limits.page_tokens));
}

void World::start_router() {
  router_ = std::make_unique<RouterProcess>(place_, ++generations_["router"], draw_.seed());
  note("the router starts");
}

engine::Request World::draw_request() {
  engine::Request request;
  request.id = RequestId{++requests_made_};
  if (draw_.chance(0.6)) request.prompt = prefixes_[draw_.below(prefixes_.size())];
  const uint64_t room = model_.model_length_max - 1 - request.prompt.size();
  for (uint64_t more = draw_.between(1, room); more > 0; --more) {
    request.prompt.push_back(static_cast<TokenId>(draw_.below(40)));
  }
  // Often more than the model's length leaves room for.
  request.tokens_max = static_cast<uint32_t>(draw_.between(1, draw_.one_of({24u, 24u, 200u})));
  if (draw_.chance(0.5)) request.stop_tokens = {static_cast<TokenId>(draw_.below(40))};
  request.sampling.seed = draw_.seed();
  request.cache_salt = draw_.one_of({"", "", "salt"});
  return request;
}

void World::ask(Span after) {
  ++asks_open_;
  timers_.after(after, [this] {
    if (router_ == nullptr) {  // nobody to ask
      --asks_open_;
      return;
    }
    engine::Request request = draw_request();
    const RequestId id = request.id;
    clients_->submit(router_->router(), std::move(request));
    --asks_open_;
    if (!draw_.chance(0.15)) return;
    timers_.after(Span(static_cast<int64_t>(draw_.below(300'000'000))), [this, id] {
      if (router_ != nullptr) clients_->cancel(router_->router(), id);
    });
  });
}

bool World::run_until(const std::function<bool()>& is_so, Span at_most) {
  const auto end = place_.executor.now() + at_most;
  while (!finding_ && !is_so()) {
    if (!place_.executor.step(end)) return false;
  }
  return true;
}

std::string World::held() const {
  for (const auto& [name, worker] : workers_) {
    if (auto held = worker->held(); !held.empty()) return held;
  }
  return {};
}

/// Nothing is left of what is over, soon.
void World::settle(const std::string& when) {
  const auto end = place_.executor.now() + kSettleMax;
  while (!held().empty() && place_.executor.now() < end) {
    if (finding_) return;
    place_.executor.run_for(milliseconds(100));
  }
  if (!held().empty()) fail(when + " something is left: " + held());
}

void World::note(const std::string& what) {
  if (!prints_trace_) return;
  const double now =
      std::chrono::duration<double>(place_.executor.now().time_since_epoch()).count();
  std::puts(fmt::format("{:12.6f} {}", now, what).c_str());
}

void World::fail(const std::string& finding) {
  note("FINDING " + finding);
  if (!finding_) finding_ = finding;
}

}  // namespace tandem::sim
