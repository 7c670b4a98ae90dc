#include "transfer/engine/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::transfer {
namespace {

// How often stalls are looked for, in parts of the stall itself: so it is found at most that part
// too late.
constexpr int kStallChecks = 4;

// When a rail that took no more is tried again although it has reported nothing.
constexpr Duration kFullRetry = std::chrono::microseconds(100);

/// Keeps what a rail tells until the poll is over, when the rail may be called again.
class Recorder final : public RailEvents {
 public:
  explicit Recorder(std::vector<RailEvent>& events) : events_(events) {}

  void post_ended(uint64_t token, RailOutcome outcome, const Error* error) override {
    RailEvent& event = add(RailEvent::Kind::kPostEnded);
    event.token = token;
    event.outcome = outcome;
    if (error != nullptr) event.error = *error;
  }
  void immediate_arrived(uint32_t immediate) override {
    add(RailEvent::Kind::kImmediate).immediate = immediate;
  }
  void message_arrived(std::span<const std::byte> bytes) override {
    add(RailEvent::Kind::kMessage).message.assign(bytes.begin(), bytes.end());
  }
  void region_closed(RailRegionId region) override {
    add(RailEvent::Kind::kRegionClosed).region = region;
  }
  void peer_closed(RailPeerId peer) override { add(RailEvent::Kind::kPeerClosed).peer = peer; }
  void rail_failed(const Error& error) override { add(RailEvent::Kind::kRailFailed).error = error; }

 private:
  RailEvent& add(RailEvent::Kind kind) {
    RailEvent& event = events_.emplace_back();
    event.kind = kind;
    return event;
  }
  std::vector<RailEvent>& events_;
};

EngineAddress address_of(const std::vector<std::unique_ptr<Rail>>& rails) {
  EngineAddress address;
  for (const auto& rail : rails) address.rails.push_back(rail->address());
  return address;
}

Error no_such(const char* what, uint64_t id) {
  return make_error(Code::kInvalidArgument, fmt::format("there is no {} {}", what, id));
}

}  // namespace

TransferEngine::Core::Core(EngineOptions options, std::vector<std::unique_ptr<Rail>> rails,
                           Clock clock, std::function<void(std::span<const std::byte>)> on_message)
    : shared{.options = std::move(options), .rails = std::move(rails), .clock = std::move(clock)},
      arrivals(shared.options.arrival_slots),
      peers(shared),
      regions(shared),
      transfers(shared),
      messenger(shared, peers),
      writer(shared, {.peers = peers, .transfers = transfers}),
      fencing(shared,
              {.arrivals = arrivals, .peers = peers, .regions = regions, .messenger = messenger},
              address_of(shared.rails)),
      on_message_(std::move(on_message)) {
  shared.now = shared.clock();
}

bool TransferEngine::Core::progress() {
  TANDEM_CHECK(!is_in_progress_, "progress() is called by a callback of it");
  is_in_progress_ = true;
  is_touched_ = false;
  shared.now = shared.clock();
  bool has_moved = false;
  for (uint32_t rail = 0; rail < shared.rails.size(); ++rail) has_moved |= poll(rail);
  // A process that was stopped itself cannot say that its peers delivered nothing meanwhile.
  const Duration check_period = shared.options.stall_max / kStallChecks;
  if (shared.now - progress_at_ > check_period) peers.forgive_stalls();
  progress_at_ = shared.now;
  if (shared.now >= stall_check_at_) {
    stall_check_at_ = shared.now + check_period;
    has_moved |= peers.lose_stalled();
  }
  for (const Fencing::Answer& answer : fencing.take_answers()) {
    if (answer.path == nullptr) {
      writer.answered(answer.transfer, answer.peer, answer.result);
    } else {
      writer.fenced(*answer.path, answer.result);
      peers.settle(*answer.path);
    }
    has_moved = true;
  }
  for (const Fencing::CountQuestion& question : writer.take_questions()) {
    fencing.ask_count(question);
  }
  has_moved |= messenger.post_all();
  has_moved |= writer.post_all();
  peers.clear_full();
  if (on_room && transfers.check_room(room_slices).ok()) {
    shared.due.push_back(std::exchange(on_room, nullptr));
  }
  while (auto complete = arrivals.take_complete()) shared.due.push_back(std::move(complete));
  has_moved |= make_callbacks();
  is_in_progress_ = false;
  return has_moved;
}

bool TransferEngine::Core::make_callbacks() {
  // What they cause to be due is made by the next progress(), so that this one ends.
  due_now_.swap(shared.due);
  for (const auto& callback : due_now_) callback();
  const bool has_moved = !due_now_.empty();
  due_now_.clear();
  return has_moved;
}

bool TransferEngine::Core::poll(uint32_t rail) {
  events_.clear();
  Recorder recorder(events_);
  fencing.poll_begins();
  shared.rails[rail]->poll(recorder, shared.options.steps_max);
  for (const RailEvent& event : events_) handle(rail, event);
  fencing.poll_ends(rail, events_.size() < shared.options.steps_max);
  return !events_.empty();
}

void TransferEngine::Core::handle(uint32_t rail, const RailEvent& event) {
  switch (event.kind) {
    case RailEvent::Kind::kPostEnded: {
      const auto post = static_cast<uint32_t>(event.token);
      if ((event.token & kMessageToken) != 0) {
        return messenger.ended(post, event.outcome, event.error);
      }
      return writer.ended(post, event.outcome, event.error);
    }
    case RailEvent::Kind::kImmediate:
      if (auto complete = arrivals.arrived(event.immediate)) {
        shared.due.push_back(std::move(complete));
      }
      return;
    case RailEvent::Kind::kMessage:
      return handle_message(event.message);
    case RailEvent::Kind::kRegionClosed: {
      const uint64_t key = regions.region_closed(rail, event.region);
      return fencing.region_closed(rail, key);
    }
    case RailEvent::Kind::kPeerClosed:
      if (Path* path = peers.path_of(rail, event.peer)) path_closed(*path);
      return;
    case RailEvent::Kind::kRailFailed:
      return peers.lose_rail(rail, event.error);
  }
}

void TransferEngine::Core::path_closed(Path& path) {
  TANDEM_CHECK(path.posted_count == 0, "a rail closed a peer before its posts had ended");
  const std::vector<uint64_t> keys = writer.keys_in_doubt(path);
  if (keys.empty()) return peers.settle(path);
  path.state = Path::State::kFencing;
  fencing.start(path, keys);
}

void TransferEngine::Core::handle_message(std::span<const std::byte> bytes) {
  auto message = decode_message(bytes);
  if (!message.ok()) {
    ++shared.counts.messages_unreadable;
    return;
  }
  if (const auto* request = std::get_if<FenceRequest>(&*message)) return fencing.received(*request);
  if (const auto* reply = std::get_if<FenceReply>(&*message)) return fencing.received(*reply);
  ++shared.counts.messages_received;
  shared.due.push_back([this, user = std::get<UserMessage>(*std::move(message))] {
    if (on_message_) on_message_(user.bytes);
  });
}

std::optional<TimePoint> TransferEngine::Core::next_deadline() {
  if (is_touched_ || !shared.due.empty()) return shared.now;
  std::optional<TimePoint> next = fencing.next_deadline();
  const auto add = [&](TimePoint deadline) {
    if (!next.has_value() || deadline < *next) next = deadline;
  };
  if (peers.posted_count() > 0) add(stall_check_at_);
  if (messenger.is_waiting() || !transfers.active().empty()) add(shared.now + kFullRetry);
  return next;
}

void TransferEngine::Core::close_peer(PeerId id) {
  if (Peer* peer = peers.find(id)) peers.close(*peer);
}

Result<Target*> TransferEngine::Core::target_of(TargetId id) {
  Target* target = regions.find_target(id);
  if (target == nullptr) return no_such("target", id.value);
  return target;
}

Result<TransferEngine::Core::Ends> TransferEngine::Core::ends_of(MemoryId source, TargetId target) {
  Ends ends{.memory = regions.find_memory(source)};
  if (ends.memory == nullptr) return no_such("memory", source.value);
  ends.target = TANDEM_TRY(target_of(target));
  return ends;
}

Result<void> TransferEngine::Core::check_fits(const Ends& ends, const WriteRange& range) {
  const auto check = [&](const char* side, uint64_t offset, uint64_t bytes) -> Result<void> {
    if (offset <= bytes && range.bytes <= bytes - offset) return {};
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} bytes at offset {} of the {} go beyond its {} bytes",
                                  range.bytes, offset, side, bytes));
  };
  TANDEM_TRY(check("source", range.source_offset, ends.memory->block.bytes));
  return check("target", range.target_offset, ends.target->descriptor.bytes);
}

}  // namespace tandem::transfer
