#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

/// How an engine rests while it has no sequence. Alone it just sleeps; beside engines with which it
/// shares a model it takes part in their steps, and sleeps when nobody has work.
class Standby {
 public:
  virtual ~Standby() = default;

  /// One turn without sequences, on the engine's thread: a step of the others, or sleep until
  /// somebody has work. `has_news` says whether this engine's inbox holds something. An Error means
  /// that the group is lost.
  virtual Result<void> turn(const std::function<bool()>& has_news) = 0;
  /// Thread-safe: the inbox holds something. Ends a sleep.
  virtual void ring() = 0;
  /// Thread-safe: ranks that were lost while this engine goes on without them, by name.
  virtual std::vector<std::string> lost_ranks() const { return {}; }
  /// The engine's last call, on its thread: the others must not wait for it.
  virtual void leave() = 0;
};

}  // namespace tandem::engine
