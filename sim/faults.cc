// What goes wrong in a world: each fault begins at a time, and is undone at another.
#include <fmt/format.h>

#include "sim/world.h"

namespace tandem::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

void World::draw_faults(Span window) {
  for (uint64_t count = draw_.between(1, 6); count > 0; --count) {
    ++faults_open_;
    const auto at = draw_.below(static_cast<uint64_t>(window.count()));
    timers_.after(Span(static_cast<int64_t>(at)), [this] {
      begin_fault();
      --faults_open_;
    });
  }
}

void World::begin_fault() {
  switch (draw_.below(18)) {
    case 0:
    case 1:
      return rails_fail();
    case 2:
      return rails_are_blocked(false);
    case 3:
      return rails_are_blocked(true);
    case 4:
      return swizzle();
    case 5:
      return partition();
    case 6:
      return drop_connections();
    case 7:
      return lose_registry();
    case 8:
      return kill(false);
    case 9:
      return kill(true);
    case 10:
      return draw_.chance(0.3) ? kill_router() : kill(false);
    case 11:
    case 12:
      return kill_in_handoff(5'000);
    case 13:
      return restart_at_once();
    case 14:
      return draw_.chance(0.5) ? stop_one() : pause_one();
    case 15:
      return lose_steps();
    case 16:
      return cancel_all();
    default:
      return ask_many();
  }
}

void World::undo_later(Span at_most, std::function<void()> undo) {
  ++faults_open_;
  // Mostly short, as what heals while it is being handled is the harder case.
  const uint64_t limit = static_cast<uint64_t>(at_most.count()) / draw_.one_of({1u, 4u, 20u}) + 1;
  timers_.after(Span(static_cast<int64_t>(draw_.below(limit))), [this, undo = std::move(undo)] {
    undo();
    --faults_open_;
  });
}

// The data plane.

void World::rails_fail() {
  transfer::LoopbackFaults faults;
  faults.delay_min = microseconds(1);
  faults.delay_max = draw_.one_of({milliseconds(1), milliseconds(50), milliseconds(900)});
  const double often = draw_.one_of({0.3, 0.05, 0.005});
  for (double* chance :
       {&faults.full, &faults.duplicate, &faults.lost, &faults.not_sent, &faults.unknown,
        &faults.lands_late, &faults.message_lost, &faults.damaged}) {
    if (draw_.chance(0.3)) *chance = often;
  }
  faults.late_max = draw_.one_of<transfer::Duration>({milliseconds(5), seconds(4)});
  note(fmt::format(
      "rails: delay {} full {} twice {} lost {} not sent {} unknown {} late {} message "
      "lost {} damaged {}",
      faults.delay_max.count(), faults.full, faults.duplicate, faults.lost, faults.not_sent,
      faults.unknown, faults.lands_late, faults.message_lost, faults.damaged));
  place_.fabric.set_faults(faults);
  undo_later(seconds(10), [this] {
    note("rails are well");
    transfer::LoopbackFaults calm;
    calm.delay_max = microseconds(300);
    place_.fabric.set_faults(calm);
  });
}

/// One direction between two processes is clogged (late) or cut (lost).
void World::rails_are_blocked(bool is_cut) {
  const WorkerProcess* source = any_worker();
  const WorkerProcess* target = any_worker();
  if (source == nullptr || target == nullptr || source->role() == target->role()) return;
  const std::string from = source->name();
  const std::string to = target->name();
  block_rails(from, to, is_cut, true);
  undo_later(seconds(30), [=, this] { block_rails(from, to, is_cut, false); });
}

/// All pairs are clogged one by one, and freed in another order.
void World::swizzle() {
  for (const WorkerSpec& source : specs_) {
    for (const WorkerSpec& target : specs_) {
      if (source.role != rpc::Role::kPrefill || target.role != rpc::Role::kDecode) continue;
      ++faults_open_;
      const auto clogged_after = Span(static_cast<int64_t>(draw_.below(1'000'000'000)));
      timers_.after(clogged_after, [this, from = source.name, to = target.name] {
        block_rails(from, to, false, true);
        undo_later(seconds(4), [this, from, to] { block_rails(from, to, false, false); });
        --faults_open_;
      });
    }
  }
}

void World::block_rails(const std::string& from, const std::string& to, bool is_cut,
                        bool is_blocked) {
  const auto source = workers_.find(from);
  const auto target = workers_.find(to);
  if (source == workers_.end() || target == workers_.end()) return;
  note(fmt::format("rails from {} to {} are {}{}", from, to, is_blocked ? "" : "not ",
                   is_cut ? "cut" : "clogged"));
  for (const transfer::Rail* a : source->second->rails()) {
    for (const transfer::Rail* b : target->second->rails()) {
      if (is_cut) {
        place_.fabric.set_cut(*a, *b, is_blocked);
      } else {
        place_.fabric.set_clogged(*a, *b, is_blocked);
      }
    }
  }
}

// The control plane.

void World::partition() {
  const std::string a = any_name();
  const std::string b = other_than(a);
  note(fmt::format("{} and {} are apart", a, b));
  place_.network.partition(a, b);
  undo_later(seconds(15), [this, a, b] {
    note(fmt::format("{} and {} are joined", a, b));
    for (const std::string& name : {a, b}) {
      if (is_alive(name) && process(name)->is_stopped()) return;  // healed with that
    }
    place_.network.heal(a, b);
  });
}

void World::drop_connections() {
  const std::string a = any_name();
  const std::string b = other_than(a);
  note(fmt::format("connections of {} and {} are reset", a, b));
  place_.network.drop_connections(a, b);
}

void World::lose_registry() {
  const std::string name = any_name();
  note(name + " does not reach the registry");
  place_.registry.set_reachable(name, false);
  undo_later(seconds(12), [this, name] {
    note(name + " reaches the registry");
    if (!is_alive(name) || !process(name)->is_stopped()) place_.registry.set_reachable(name, true);
  });
}

// Processes.

void World::kill(bool is_drained) {
  WorkerProcess* worker = any_worker();
  if (worker == nullptr || worker->is_stopped()) return;
  const std::string name = worker->name();
  if (!is_drained) return die(name);
  note(name + " drains");
  worker->drain();
  undo_later(seconds(10), [this, name] { die(name); });
}

void World::die(std::string name) {
  if (!workers_.contains(name)) return;
  if (workers_.at(name)->is_stopped()) isolate(name, false);
  note(name + " dies");
  workers_.erase(name);
  undo_later(seconds(10), [this, name] {
    if (!workers_.contains(name)) start(name);
  });
}

/// Either side of it.
void World::kill_in_handoff(int looks_left) {
  WorkerProcess* worker = any_worker();
  if (worker != nullptr && !worker->is_stopped() && worker->handoffs_count() > 0) {
    note(fmt::format("{} has {} hand-offs", worker->name(), worker->handoffs_count()));
    return die(worker->name());
  }
  if (looks_left == 0) return;
  ++faults_open_;
  timers_.after(milliseconds(1), [this, looks_left] {
    kill_in_handoff(looks_left - 1);
    --faults_open_;
  });
}

/// The others have connections and links to the life that is gone.
void World::restart_at_once() {
  const WorkerProcess* worker = any_worker();
  if (worker == nullptr || worker->is_stopped()) return;
  const std::string name = worker->name();
  note(name + " dies and starts again at once");
  workers_.erase(name);
  start(name);
}

void World::kill_router() {
  if (router_ == nullptr || router_->is_stopped()) return;
  note("the router dies");
  router_.reset();
  undo_later(seconds(5), [this] {
    if (router_ == nullptr) start_router();
  });
}

void World::stop_one() {
  WorkerProcess* worker = any_worker();
  if (worker == nullptr || worker->is_stopped()) return;
  const std::string name = worker->name();
  note(name + " is stopped");
  worker->stop();
  isolate(name, true);
  undo_later(seconds(60), [this, name, life = generations_[name]] {
    if (!is_alive(name) || generations_[name] != life) return;
    note(name + " continues");
    workers_.at(name)->resume();
    isolate(name, false);
  });
}

/// So short that nobody need notice, also the router: its clients then hear late.
void World::pause_one() {
  const std::string name = any_name();
  if (!is_alive(name) || process(name)->is_stopped()) return;
  note(name + " pauses");
  process(name)->stop();
  undo_later(seconds(1), [this, name, life = generations_[name]] {
    if (!is_alive(name) || generations_[name] != life) return;
    note(name + " goes on");
    process(name)->resume();
    isolate(name, false);  // what should have been joined meanwhile
  });
}

void World::isolate(const std::string& name, bool is_cut_off) {
  for (const std::string& other : names()) {
    if (other == name) continue;
    if (is_cut_off) {
      place_.network.partition(name, other);
    } else if (!is_alive(other) || !process(other)->is_stopped()) {
      place_.network.heal(name, other);
    }
  }
  place_.registry.set_reachable(name, !is_cut_off);
}

void World::lose_steps() {
  WorkerProcess* worker = any_worker();
  if (worker == nullptr) return;
  const std::string name = worker->name();
  note(name + " loses steps");
  worker->set_step_loss(draw_.one_of({0.02, 0.3}));
  undo_later(seconds(5), [this, name] {
    if (is_alive(name)) workers_.at(name)->set_step_loss(0);
  });
}

// Clients.

void World::cancel_all() {
  if (router_ == nullptr) return;
  note("all requests are cancelled");
  for (const RequestId id : clients_->open_ids()) clients_->cancel(router_->router(), id);
}

/// More than there are pages for.
void World::ask_many() {
  note("many requests at once");
  for (uint64_t count = draw_.between(20, 60); count > 0; --count) {
    ask(Span(static_cast<int64_t>(draw_.below(5'000'000))));
  }
}

// Who.

std::vector<std::string> World::names() const {
  std::vector<std::string> names{"router"};
  for (const WorkerSpec& spec : specs_) names.push_back(spec.name);
  return names;
}

std::string World::any_name() {
  const std::vector<std::string> all = names();
  return all[draw_.below(all.size())];
}

std::string World::other_than(const std::string& name) {
  for (;;) {
    std::string other = any_name();
    if (other != name) return other;
  }
}

WorkerProcess* World::any_worker() {
  const auto found = workers_.find(specs_[draw_.below(specs_.size())].name);
  return found == workers_.end() ? nullptr : found->second.get();
}

bool World::is_alive(const std::string& name) const {
  return name == "router" ? router_ != nullptr : workers_.contains(name);
}

Process* World::process(const std::string& name) {
  if (name == "router") return router_.get();
  return workers_.at(name).get();
}

}  // namespace tandem::sim
