#pragma once

#include <functional>

#include "base/result.h"
#include "transfer/transfer_engine.h"

namespace tandem::transfer {

/// What moves a TransferEngine: a thread of its own (EngineDriver) or the executor of a simulator
/// (ExecutorDriver). Everything of the engine, callbacks included, happens where it is moved;
/// others hand in commands, which never run within submit().
class Driver {
 public:
  using Command = std::function<void(TransferEngine&)>;
  virtual ~Driver() = default;
  /// To be run in the order of submission. From any thread. kResourceExhausted when as many wait
  /// as may.
  virtual Result<void> submit(Command command) = 0;
};

}  // namespace tandem::transfer
