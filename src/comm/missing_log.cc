#include "comm/missing_log.h"

#include <spdlog/spdlog.h>

namespace tandem::comm {

void MissingLog::look(const std::string& missing) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  const auto waited = now - start_;
  spdlog::warn("comm_ranks_missing rank={} missing=\"{}\" waited_ms={}", rank_, missing,
               std::chrono::duration_cast<std::chrono::milliseconds>(waited).count());
  next_ = now + waited;
}

}  // namespace tandem::comm
