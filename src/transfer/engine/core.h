#pragma once

#include <optional>

#include "transfer/engine/fencing.h"
#include "transfer/engine/writer.h"
#include "transfer/rail_event.h"
#include "transfer/transfer_engine.h"

namespace tandem::transfer {

/// The parts of an engine and what passes between them.
class TransferEngine::Core {
 public:
  Core(EngineOptions options, std::vector<std::unique_ptr<Rail>> rails, Clock clock,
       std::function<void(std::span<const std::byte>)> on_message);

  bool progress();
  std::optional<TimePoint> next_deadline();
  void close_peer(PeerId peer);
  /// The owner has called something, so that progress() may have something to do.
  void touch() { is_touched_ = true; }

  /// Source and target of one call, and whether these ranges fit into them.
  struct Ends {
    Memory* memory = nullptr;  // null: the slices have no bytes
    Target* target = nullptr;
  };
  Result<Ends> ends_of(MemoryId source, TargetId target);
  Result<Target*> target_of(TargetId target);
  static Result<void> check_fits(const Ends& ends, const WriteRange& range);

  EngineShared shared;
  ArrivalTable arrivals;
  PeerTable peers;
  RegionTable regions;
  TransferTable transfers;
  Messenger messenger;
  Writer writer;
  Fencing fencing;
  /// Of who waits until so many more slices fit; none: nobody does.
  uint32_t room_slices = 0;
  std::function<void()> on_room;

 private:
  bool poll(uint32_t rail);
  void handle(uint32_t rail, const RailEvent& event);
  void handle_message(std::span<const std::byte> bytes);
  void path_closed(Path& path);
  bool make_callbacks();

  const std::function<void(std::span<const std::byte>)> on_message_;
  std::vector<RailEvent> events_;
  std::vector<std::function<void()>> due_now_;
  TimePoint stall_check_at_;
  TimePoint progress_at_;
  bool is_in_progress_ = false;
  bool is_touched_ = false;
};

}  // namespace tandem::transfer
