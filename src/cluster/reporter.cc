#include "cluster/reporter.h"

namespace tandem::cluster {

void Reporter::subscribe(rpc::ConnectionId router) {
  routers_[router];
  report();
  if (!is_ticking_) report_and_repeat();
}

void Reporter::submitted(rpc::ConnectionId router, uint64_t number) {
  const auto found = routers_.find(router);
  if (found != routers_.end()) found->second.number = number;
}

void Reporter::report() {
  if (routers_.empty()) return;
  Report report = make_();
  for (auto& [connection, router] : routers_) {
    report.requests_included = router.number_before;
    // A router that takes nothing more, or is gone, hears of it by its connection.
    static_cast<void>(channel_->send(connection, encode(WorkerMessage(report))));
  }
}

void Reporter::report_and_repeat() {
  is_ticking_ = !routers_.empty();
  if (!is_ticking_) return;
  report();
  for (auto& [connection, router] : routers_) router.number_before = router.number;
  timers_.after(every_, [this] { report_and_repeat(); });
}

}  // namespace tandem::cluster
