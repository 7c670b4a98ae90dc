#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/connection.h"
#include "comm/group_health.h"

namespace tandem::comm {

/// The thread `comm-watch` of a rank: keeps its GroupHealth true. Rank 0 watches a connection to
/// every rank and passes on what it learns; the others watch theirs to rank 0. The end of a
/// connection without a farewell is a death; the kernel ends it when the process dies, and about
/// four seconds after the machine does. Silence is only logged: a stopped process is late, not
/// dead.
class Watch {
 public:
  /// Owns the connections; `health` outlives this.
  static Result<std::unique_ptr<Watch>> start(int rank,
                                              std::vector<std::optional<Connection>> connections,
                                              GroupHealth& health);
  /// Says farewell if nothing was said, and ends the thread. Rank 0 first waits a few seconds for
  /// the others to leave, because they learn of each other through it.
  ~Watch();

  /// Tells the others that this rank cannot go on.
  void fail(const std::string& reason);

 private:
  Watch(int rank, std::vector<std::optional<Connection>> connections, GroupHealth& health,
        io::Socket wake, io::Socket woken);
  void run();
  void wait_for_news();
  void read(int source);
  void handle(int source, const Message& message);
  void tell(const Message& message, int except);
  void say_farewell();
  void report_silence();
  bool is_finished() const;

  const int rank_;
  std::vector<std::optional<Connection>> connections_;
  std::vector<std::chrono::steady_clock::time_point> heard_;
  GroupHealth& health_;
  io::Socket wake_;   // written to by the rank's thread
  io::Socket woken_;  // read by the watch

  std::mutex mutex_;
  std::optional<Message> farewell_;  // guarded by mutex_; what the rank wants to be said
  std::atomic<bool> leaving_{false};
  bool farewell_said_ = false;                          // of the watch's thread
  std::chrono::steady_clock::time_point linger_until_;  // of the watch's thread
  std::thread thread_;
};

}  // namespace tandem::comm
