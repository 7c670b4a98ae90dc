#include "sim/process.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/hash.h"
#include "transfer/executor_driver.h"

namespace tandem::sim {
namespace {

class NobodyElse final : public rpc::MembershipEvents {
  void on_joined(const rpc::Member&) override {}
  void on_changed(const rpc::Member&) override {}
  void on_left(const rpc::Member&) override {}
};
NobodyElse nobody_else;

cluster::handoff::MessageLimits message_limits(const engine::Limits& limits) {
  cluster::handoff::MessageLimits messages;
  messages.tokens_max = limits.model_length_max;
  messages.vocabulary_size = static_cast<int32_t>(limits.vocabulary_size);
  return messages;
}

cluster::Hello hello_of(const WorkerSpec& spec) {
  return {.build = "sim",
          .fingerprint = "hash model",
          .compute = "f32",
          .vocabulary_size = static_cast<int32_t>(spec.limits.vocabulary_size),
          .model_length_max = spec.limits.model_length_max,
          .layout = spec.layout};
}

}  // namespace

void Process::open(rpc::ChannelEvents& events, rpc::MembershipEvents& members, uint64_t generation,
                   uint64_t seed) {
  rpc::ChannelOptions options;
  options.self = {name_, generation};
  options.seed = seed;
  channel_ = std::make_unique<GatedChannel>(place_.network, options, name_, events, gate_);
  members_ = std::make_unique<GatedMembership>(members, gate_);
  membership_ = place_.registry.open(name_, *members_);
}

// Routers.

RouterProcess::RouterProcess(Place& place, uint64_t generation, uint64_t seed)
    : Process(place, "router") {
  cluster::Router::Options options;
  options.board.prefix_keys = {.hash = kv::xxh3_hash, .seed = seed, .block_tokens = 8};
  router_ = std::make_unique<cluster::Router>(options, gate_);
  open(*router_, *router_, generation, seed);
  router_->start(*channel_);
}

RouterProcess::~RouterProcess() {
  close();
  router_.reset();
}

// Workers.

WorkerProcess::WorkerProcess(Place& place, const WorkerSpec& spec, uint64_t generation,
                             uint64_t seed)
    : Process(place, spec.name), spec_(spec), draw_(seed) {
  const bool decodes = spec.role == rpc::Role::kDecode;
  for (uint32_t i = 0; i < spec.groups; ++i) {
    Group& group = groups_.emplace_back();
    const std::string name = fmt::format("{}.{} group {}", spec.name, generation, i);
    group.runner = std::make_unique<SimRunner>(spec.layout, name, place.find);
    group.runner->loses_step = [this] { return draw_.chance(step_loss_); };
    group.reservations = std::make_unique<cluster::ReservationPort>(box_);
    engine::Limits limits = spec.limits;
    limits.prefix_seed = draw_.seed();
    group.engine = std::make_unique<SimEngine>(
        SimEngine::Options{.limits = limits,
                           .source = decodes ? group.reservations.get() : nullptr,
                           .observer = decodes ? nullptr : &exports_,
                           .step_max = spec.step_max,
                           .seed = draw_.seed()},
        *group.runner, gate_);
  }
  if (decodes) {
    std::vector<cluster::DecodeWorker::Group> groups;
    for (size_t i = 0; i < groups_.size(); ++i) {
      groups.push_back({.engine = groups_[i].engine.get(),
                        .imports = groups_[i].engine.get(),
                        .ranks = open_ranks(groups_[i], i)});
    }
    cluster::DecodeWorker::Options options;
    options.name = spec.name;
    options.self = hello_of(spec);
    options.limits = message_limits(spec.limits);
    options.group = spec.handoffs;
    options.group.link_seed = draw_.seed();
    decode_ = std::make_unique<cluster::DecodeWorker>(std::move(options), std::move(groups),
                                                      events_, gate_);
    for (size_t i = 0; i < groups_.size(); ++i) {
      groups_[i].reservations->connect(decode_->reservations(i));
    }
    open(*decode_, *decode_, generation, draw_.seed());
    decode_->start(*channel_);
  } else {
    cluster::PrefillWorker::Options options;
    options.self = hello_of(spec);
    options.generation = generation;
    options.limits = message_limits(spec.limits);
    prefill_ = std::make_unique<cluster::PrefillWorker>(
        std::move(options),
        cluster::PrefillGroup::Engine{.client = groups_[0].engine.get(),
                                      .exports = groups_[0].engine.get(),
                                      .events = &events_},
        open_ranks(groups_[0], 0), gate_);
    exports_.connect(prefill_->exports());
    open(*prefill_, nobody_else, generation, draw_.seed());
    prefill_->start(*channel_);
  }
  self_.id = spec.name;
  self_.role = spec.role;
  self_.generation = generation;
  self_.address = spec.name;
  announce();
}

WorkerProcess::~WorkerProcess() {
  close();
  decode_.reset();
  prefill_.reset();
}

void WorkerProcess::announce() {
  const Result<void> announced = membership_->announce(self_);
  TANDEM_CHECK(announced.ok(), "a worker of the simulator has a valid entry");
}

std::vector<cluster::DataRank> WorkerProcess::open_ranks(Group& group, size_t index) {
  std::vector<cluster::DataRank> ranks;
  for (size_t i = 0; i < group.runner->ranks().size(); ++i) {
    std::vector<std::unique_ptr<transfer::Rail>> rails;
    rails.push_back(place_.fabric.make_rail({.name = name_}));
    rails_.push_back(rails.back().get());
    cluster::DataRankOptions options;
    options.engine = spec_.transfers;
    options.engine.name = fmt::format("{} group {} rank {}", name_, index, i);
    options.sidecar_records = spec_.sidecar_records;
    options.clock = [this] { return place_.executor.now(); };
    options.drive = [this](std::unique_ptr<transfer::TransferEngine> engine)
        -> Result<std::unique_ptr<transfer::Driver>> {
      transfer::ExecutorDriverOptions driver;
      driver.commands_max = 1 << 16;
      driver.sleep_max = std::chrono::milliseconds(draw_.one_of({5, 50}));
      return std::unique_ptr<transfer::Driver>(
          std::make_unique<transfer::ExecutorDriver>(std::move(engine), gate_, driver));
    };
    ranks.push_back(
        cluster::open_data_rank(*group.runner->ranks()[i], std::move(rails), options).value());
  }
  return ranks;
}

void WorkerProcess::drain() {
  self_.draining = true;
  announce();
  if (decode_ != nullptr) decode_->drain();
  if (prefill_ != nullptr) prefill_->drain();
}

bool WorkerProcess::is_idle() const {
  return decode_ != nullptr ? decode_->is_idle() : prefill_->is_idle();
}

uint32_t WorkerProcess::handoffs_count() const {
  if (prefill_ != nullptr) return prefill_->group().handoffs_count();
  uint32_t count = 0;
  for (size_t i = 0; i < groups_.size(); ++i) count += decode_->group(i).handoffs_count();
  return count;
}

std::string WorkerProcess::held() const {
  std::string held;
  const auto say = [&](uint64_t count, const std::string& what) {
    if (count > 0) held += fmt::format("{}{} {}", held.empty() ? "" : ", ", count, what);
  };
  if (!is_idle()) held = "requests";
  if (prefill_ != nullptr) say(prefill_->group().handoffs_count(), "hand-offs");
  for (size_t i = 0; i < groups_.size(); ++i) {
    const engine::EngineStatus status = groups_[i].engine->status();
    say(status.requests_running, "running");
    say(status.requests_waiting, "waiting");
    say(status.requests_awaiting_kv, "awaiting K and V");
    say(status.pages_used, "pages used");
    say(status.pages_leased, "pages leased");
    say(status.pages_quarantined, "pages in quarantine");
    if (decode_ == nullptr) continue;
    say(decode_->group(i).handoffs_count(), "hand-offs");
    say(decode_->group(i).quarantined_pages(), "pages in a hand-off's quarantine");
  }
  return held.empty() ? held : name_ + ": " + held;
}

std::string WorkerProcess::counters() const {
  if (prefill_ != nullptr) {
    const auto& c = prefill_->group().counters();
    return fmt::format("{}: begun {} refused {} completed {} failed {} cancelled {} expired {}",
                       name_, c.begun, c.refused, c.completed, c.failed, c.cancelled, c.expired);
  }
  std::string text = name_ + ":";
  for (size_t i = 0; i < groups_.size(); ++i) {
    const auto& c = decode_->group(i).counters();
    const engine::EngineStatus status = groups_[i].engine->status();
    text += fmt::format(
        " [started {} admitted {} failed {} cancelled {} not_proved {} fences {} preemptions {}]",
        c.started, c.admitted, c.failed, c.cancelled, c.not_proved, c.fences, status.preemptions);
  }
  return text;
}

}  // namespace tandem::sim
