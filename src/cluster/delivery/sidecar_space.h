#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tandem::cluster {

/// Room for sidecar records: hands out stretches of one array, first fit, and takes them back. The
/// same stretch serves all ranks of a decode group. One thread.
class SidecarSpace {
 public:
  explicit SidecarSpace(uint64_t records_total);
  /// The first of `records` in a row, at least one; none when no gap is long enough.
  std::optional<uint64_t> take(uint64_t records);
  /// `first` was given by take() and is not given back yet.
  void give_back(uint64_t first);
  uint64_t records_taken() const { return taken_; }

 private:
  std::map<uint64_t, uint64_t> gaps_;  // first -> records; never two in touch
  std::map<uint64_t, uint64_t> taken_stretches_;
  uint64_t taken_ = 0;
};

}  // namespace tandem::cluster
