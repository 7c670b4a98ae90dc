#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/ports.h"

namespace tandem::engine {

/// Tells observers how far the ranks of this process are with steps that compute for others: a
/// thread "kv-watch" that looks at the ranks' counters while such a step runs, and sleeps
/// otherwise. Each engine gets observer() in place of its group's own observer, to which all calls
/// go on; so the watch knows which steps run.
///
/// When a step is over it looks once more, whatever has become of the step, and then waits for
/// nothing. So the last layer of a step that succeeded is always told, perhaps after the events of
/// the step; that of a step that failed may never be.
class ProgressWatch {
 public:
  /// A data-parallel group.
  struct Group {
    StepObserver* observer = nullptr;  ///< outlives the watch
    uint32_t layers = 0;
    /// ModelRunner::layer_progress of each tensor-parallel rank, called on the watch's thread; an
    /// empty function for a rank of another process.
    std::vector<std::function<uint64_t()>> ranks;
  };
  explicit ProgressWatch(std::vector<Group> groups);
  /// The engines are gone; the ranks are not.
  ~ProgressWatch();

  StepObserver& observer(size_t group);

 private:
  class Watched;
  /// Steps of a group that compute for others.
  struct Steps {
    uint64_t first = 0;  ///< since all were seen
    uint64_t scheduled = 0;
    uint64_t ended = 0;
    uint64_t seen = 0;  ///< to their end
    bool are_open() const { return seen < scheduled; }
  };
  void loop();
  bool has_open() const;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool has_changed_ = false;  // guarded by mutex_: any of Steps, since the last look
  bool is_stopping_ = false;  // guarded by mutex_
  std::vector<std::unique_ptr<Watched>> groups_;
  std::thread thread_;
};

}  // namespace tandem::engine
