#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transfer/rail.h"
#include "transfer/time_point.h"

namespace tandem::transfer {

/// What goes wrong by chance, drawn per post from the fabric's seed. A chance is 0 to 1.
struct LoopbackFaults {
  /// Of each step of a write (begin, finish, end). Different delays make another order.
  Duration delay_min{0};
  Duration delay_max{0};
  double full = 0;          ///< The post answers kFull.
  double duplicate = 0;     ///< The bytes land twice before the end; the immediate arrives once.
  double lost = 0;          ///< Nothing lands and nothing is reported until the path is closed.
  double not_sent = 0;      ///< The path is lost; this post ends kNotSent.
  double unknown = 0;       ///< The path is lost; of this post nothing, a part or all landed.
  double lands_late = 0;    ///< A post that ended kUnknown lands later all the same, unless fenced.
  Duration late_max{0};     ///< How much later.
  double message_lost = 0;  ///< A message ends kDelivered and does not arrive.
  /// Beyond the contract of a rail, for the checks above it:
  double immediate_repeated = 0;  ///< It arrives twice.
  double damaged = 0;             ///< Reported as delivered, but one byte is wrong.
};

struct LoopbackRailOptions {
  std::string name = "loopback";
  RailLimits limits{.write_bytes_max = 1 << 20, .message_bytes_max = 4096, .posts_max = 64};
  uint32_t regions_max = ~uint32_t{0};  ///< Registrations at a time.
  bool can_fence = true;
  /// Has a descriptor to wait on. Only without delays: nobody would end them while all sleep.
  bool has_wait_descriptor = false;
  bool has_virtual_addresses = false;  ///< Keys count from an address, as FI_MR_VIRT_ADDR does.
};

/// Many rails in one process: memory is copied, in an order and with faults that only the seed and
/// the clock decide. Bytes move while any rail is polled. Its rails may belong to different
/// threads; it outlives them.
class LoopbackFabric {
 public:
  LoopbackFabric(uint64_t seed, Clock clock);
  ~LoopbackFabric();

  std::unique_ptr<Rail> make_rail(const LoopbackRailOptions& options);

  /// For what is posted from now on.
  void set_faults(const LoopbackFaults& faults);
  /// The rail fails: its owner and, on their next write to it, the others are told. Destroying a
  /// rail does the same: that is the death of its process.
  void fail_rail(const Rail& rail);
  /// While a direction is clogged, nothing new moves on it; afterwards it does.
  void set_clogged(const Rail& source, const Rail& target, bool is_clogged);
  /// While a direction is cut, what is posted on it is lost without a word.
  void set_cut(const Rail& source, const Rail& target, bool is_cut);

  /// Registrations of the rail that are not closed.
  uint32_t regions_count(const Rail& rail) const;

  /// When something is due to happen; nothing, if only posts or calls can change that. What is
  /// ready to be polled does not count: poll all rails first.
  std::optional<TimePoint> next_event() const;

 private:
  friend class LoopbackRail;
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::transfer
