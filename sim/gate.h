#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "io/executor.h"

namespace tandem::sim {

/// A process's executor over that of the world: while the process is stopped (SIGSTOP), nothing of
/// it runs, and what became due runs when it continues. Time passes all the same.
class Gate final : public io::Executor {
 public:
  /// `world` outlives this, and this every task that is in it.
  explicit Gate(io::Executor& world) : world_(world) {}
  ~Gate() override {
    for (auto& [task, entry] : entries_) world_.forget(*entry);
  }

  void stop() { is_stopped_ = true; }
  void resume() {
    is_stopped_ = false;
    for (Entry* entry : std::exchange(missed_, {})) world_.wake(*entry);
  }
  bool is_stopped() const { return is_stopped_; }

  io::Time now() const override { return world_.now(); }
  void wake(io::Task& task) override { world_.wake(entry(task)); }
  void wake_at(io::Task& task, io::Time time) override { world_.wake_at(entry(task), time); }
  void forget(io::Task& task) override {
    const auto found = entries_.find(&task);
    if (found == entries_.end()) return;
    world_.forget(*found->second);
    std::erase(missed_, found->second.get());
    entries_.erase(found);
  }

 private:
  struct Entry final : io::Task {
    Entry(Gate& of_gate, io::Task& of_task) : gate(of_gate), task(of_task) {}
    void run() override {
      if (gate.is_stopped_) {
        if (!is_missed()) gate.missed_.push_back(this);
      } else {
        task.run();  // may end this
      }
    }
    bool is_missed() const {
      return std::find(gate.missed_.begin(), gate.missed_.end(), this) != gate.missed_.end();
    }
    Gate& gate;
    io::Task& task;
  };

  Entry& entry(io::Task& task) {
    auto& entry = entries_[&task];
    if (entry == nullptr) entry = std::make_unique<Entry>(*this, task);
    return *entry;
  }

  io::Executor& world_;
  bool is_stopped_ = false;
  std::map<io::Task*, std::unique_ptr<Entry>> entries_;
  std::vector<Entry*> missed_;  // in the order in which they became due
};

}  // namespace tandem::sim
