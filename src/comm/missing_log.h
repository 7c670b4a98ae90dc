#pragma once

#include <chrono>
#include <string>

namespace tandem::comm {

/// Says in the log whom a rank misses while it waits: after two seconds, four, eight, ... One
/// thread.
class MissingLog {
 public:
  explicit MissingLog(int rank) : rank_(rank) {}

  /// Logs if it is time to.
  void look(const std::string& missing);
  std::chrono::steady_clock::time_point next() const { return next_; }

 private:
  const int rank_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = start_ + std::chrono::seconds(2);
};

}  // namespace tandem::comm
