#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/clients.h"
#include "sim/process.h"

namespace tandem::sim {

/// A cluster, its clients and its faults, all drawn from one seed. A few seeds are calm: nothing is
/// injected, and then every request must succeed.
class World {
 public:
  World(uint64_t seed, bool prints_trace);
  ~World();

  /// Lives through all of it. What is wrong, if anything.
  std::optional<std::string> run();

 private:
  using Span = std::chrono::nanoseconds;

  // The cluster (world.cc).
  void draw_cluster();
  WorkerSpec draw_worker(rpc::Role role, size_t number);
  void start(const std::string& worker);
  void start_router();
  engine::Request draw_request();
  void ask(Span after);
  bool run_until(const std::function<bool()>& is_so, Span at_most);
  std::string held() const;
  void settle(const std::string& when);

  // What goes wrong (faults.cc).
  void draw_faults(Span window);
  void begin_fault();
  void rails_fail();
  void rails_are_blocked(bool is_cut);
  void swizzle();
  void block_rails(const std::string& from, const std::string& to, bool is_cut, bool is_blocked);
  void partition();
  void drop_connections();
  void lose_registry();
  void kill(bool is_drained);
  void kill_in_handoff(int looks_left);
  void restart_at_once();
  void die(std::string name);  // by value: the process that says its name ends
  void kill_router();
  void stop_one();
  void pause_one();
  void lose_steps();
  void cancel_all();
  void ask_many();
  /// Draws how long something lasts; `undo` is called then.
  void undo_later(Span at_most, std::function<void()> undo);
  std::string any_name();
  std::string other_than(const std::string& name);
  WorkerProcess* any_worker();
  std::vector<std::string> names() const;
  bool is_alive(const std::string& name) const;
  Process* process(const std::string& name);
  /// Cut off from everybody, or not any more.
  void isolate(const std::string& name, bool is_cut_off);

  void note(const std::string& what);
  void fail(const std::string& finding);

  const bool prints_trace_;
  Draw draw_;
  std::optional<std::string> finding_;
  Place place_;
  io::Timers timers_{place_.executor};
  bool is_calm_ = false;
  engine::Limits model_;  ///< what all workers have in common
  std::vector<std::vector<TokenId>> prefixes_;
  std::vector<WorkerSpec> specs_;
  std::map<std::string, uint64_t> generations_;
  std::unique_ptr<Clients> clients_;
  std::unique_ptr<RouterProcess> router_;
  std::map<std::string, std::unique_ptr<WorkerProcess>> workers_;
  uint64_t requests_made_ = 0;
  size_t faults_open_ = 0;
  size_t asks_open_ = 0;
};

}  // namespace tandem::sim
