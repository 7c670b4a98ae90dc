#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/engine_core.h"
#include "engine/standby.h"

namespace tandem::engine {

/// EngineCore with its thread ("engine") and its inbox. submit(), cancel(), status() and the ports
/// may come from any thread; events leave on the engine's thread. Idle, or with nothing but
/// sequences that await K and V, it sleeps until a producer wakes it.
class Engine final : public EngineClient, public KvPorts {
 public:
  struct Options {
    Limits limits;
    Standby* standby = nullptr;  ///< how it rests; null: alone, on its own thread
    /// Called once, on the engine's thread, when its group is lost. From then on it is not ready
    /// and refuses requests; those it had end with the error.
    std::function<void(const Error&)> on_lost;
    KvSource* source = nullptr;        ///< of imports; outlives the engine
    StepObserver* observer = nullptr;  ///< of exports; outlives the engine
  };
  /// `runner` and `standby` must outlive the engine.
  static Result<std::unique_ptr<Engine>> create(const Options& options, StepRunner& runner);
  /// Ends what lives with kUnavailable, then the thread.
  ~Engine() override;

  Result<void> submit(Request request, EventSink& sink) override;
  void cancel(RequestId id) override;
  EngineStatus status() const override;
  void tell(KvNews news) override;
  /// Makes the thread end soon, so that several engines can end together.
  void stop();

 private:
  struct Submitted {
    Request request;
    EventSink* sink;
    int64_t time_us;
  };
  Engine(const Options& options, const StepRunner& runner, std::unique_ptr<EngineCore> core);
  void loop();
  Result<void> rest();
  bool has_news() const;
  bool is_called() const;
  void wake();
  void end(const Error& error);
  void refuse(const Error& lost);
  void wait_for_stop(const Error& lost);
  void take_inbox();
  void publish();

  const Limits limits_;
  const StepRunner& runner_;
  Standby* const standby_;
  const std::function<void(const Error&)> on_lost_;
  std::unique_ptr<EngineCore> core_;  // engine thread only

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Submitted> inbox_;          // guarded by mutex_
  std::vector<RequestId> cancellations_;  // guarded by mutex_
  std::vector<KvNews> news_;              // guarded by mutex_; a few per request at most
  uint64_t queued_tokens_ = 0;            // guarded by mutex_: prompts in inbox and waiting list
  bool stopping_ = false;                 // guarded by mutex_
  std::optional<Error> lost_;             // guarded by mutex_: why no request can be served
  EngineStatus published_;                // guarded by mutex_
  std::vector<Submitted> taken_;          // engine thread only; swapped with inbox_
  std::vector<RequestId> taken_cancellations_;  // engine thread only
  std::vector<KvNews> taken_news_;              // engine thread only

  std::atomic<int64_t> step_started_us_{0};  // 0: no step is running
  std::thread thread_;
};

}  // namespace tandem::engine
