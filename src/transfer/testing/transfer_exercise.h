#pragma once

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "transfer/testing/loopback_world.h"

namespace tandem::transfer {

/// Random use of engines under random faults, against a plain model: sources write slices into
/// pages that the target lends them, rails fail, processes die, transfers are cancelled, grants are
/// revoked. Every decision comes from `choose(limit)`, a number below the limit.
///
/// The target takes pages back as early as the contract allows: when a count completes, when a
/// transfer ends settled, when a grant is closed. It then fills them with other bytes, and at
/// every step all bytes that nobody may write are compared. Sources overwrite theirs when a
/// transfer has ended. What is wrong ends the process with a text.
class TransferExercise {
 public:
  using Choose = std::function<uint32_t(uint32_t limit)>;
  explicit TransferExercise(Choose choose);
  ~TransferExercise();

  /// One operation or a little time.
  void step();
  /// Ends all faults, lets everything end, and checks that it did.
  void finish_all();

  struct Seen {
    uint64_t completions = 0;
    uint64_t failures_settled = 0;
    uint64_t failures_unsettled = 0;
    uint64_t takeovers = 0;  ///< paths lost while another was open
    uint64_t revocations = 0;
    uint64_t restarts = 0;
    uint64_t immediates_repeated = 0;
    uint64_t writes_repeated = 0;
  };
  const Seen& seen() const { return seen_; }

 private:
  static constexpr uint32_t kSources = 2;
  static constexpr uint32_t kPages = 48;
  static constexpr uint32_t kPageBytes = 96;
  static constexpr uint32_t kSlots = 6;

  struct Source;
  struct Job;

  void start_job();
  void submit_more();
  void cancel_job();
  void submitted(Source& source, Job& job);
  void completed(uint64_t job);
  void ended(uint64_t job, const TransferEnd& end);
  void stop_waiting(Job& job);
  void give_back_pages(Job& job);
  void forget_source_pages(Job& job);
  void start_source(uint32_t index);
  void restart(Source& source);
  void fence(Source& source);
  void closed(uint64_t grant_number, bool is_fenced);
  void meet(Source& source);
  void draw_faults();
  void fail_rail();
  void disturb_link(bool is_cut);
  void check_memory() const;
  void check_bounds() const;
  Job* any_job();
  std::byte random_byte() { return static_cast<std::byte>(bytes_()); }
  void expect(bool holds, const char* what) const;

  Choose choose_;
  std::mt19937_64 bytes_;
  LoopbackWorld world_;
  LoopbackWorld::EngineSetup setup_;
  std::array<std::unique_ptr<Source>, kSources> sources_;
  std::vector<std::byte> memory_;    // of the target
  std::vector<std::byte> expected_;  // what must be there where nobody may write
  std::vector<bool> is_writable_;    // by byte
  std::vector<bool> is_page_lent_;
  MemoryId memory_id_;
  std::array<uint16_t, kSlots> epochs_{};
  std::array<bool, kSlots> is_slot_waiting_{};
  std::vector<std::unique_ptr<Job>> jobs_;
  uint64_t jobs_made_ = 0;
  uint64_t grants_made_ = 0;
  uint32_t target_rails_alive_ = 0;
  uint32_t calm_ = 1;  // one in so many troubles happens
  bool is_finishing_ = false;
  Seen seen_;
};

}  // namespace tandem::transfer
