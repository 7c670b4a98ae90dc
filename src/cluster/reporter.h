#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "cluster/wire/worker_message.h"
#include "io/timers.h"
#include "rpc/channel.h"

namespace tandem::cluster {

/// Tells the routers that asked how a worker is, `every` so often. Owner's thread only.
class Reporter {
 public:
  /// `make` gives the report without what is different per router. `executor` outlives this.
  Reporter(io::Executor& executor, std::chrono::milliseconds every, std::function<Report()> make)
      : timers_(executor), every_(every), make_(std::move(make)) {}

  /// Before the first router comes; `channel` outlives this.
  void start(rpc::Channel& channel) { channel_ = &channel; }

  void subscribe(rpc::ConnectionId router);
  void closed(rpc::ConnectionId router) { routers_.erase(router); }
  /// This router has sent a request with this number.
  void submitted(rpc::ConnectionId router, uint64_t number);
  /// To all at once, for news that should not wait.
  void report();

 private:
  /// An engine counts a request a moment after it was submitted. So figures include only those that
  /// were here at the report before.
  struct Router {
    uint64_t number = 0;
    uint64_t number_before = 0;
  };
  void report_and_repeat();

  rpc::Channel* channel_ = nullptr;
  io::Timers timers_;
  const std::chrono::milliseconds every_;
  const std::function<Report()> make_;
  std::map<rpc::ConnectionId, Router> routers_;
  bool is_ticking_ = false;
};

}  // namespace tandem::cluster
