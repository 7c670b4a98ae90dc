#include "transfer/transfer_engine.h"

#include <fmt/format.h>

#include <utility>

#include "transfer/engine/core.h"

namespace tandem::transfer {
namespace {

/// Place of a page; none when it is beyond 64 bits.
std::optional<uint64_t> place_of(const PageList& list, size_t i) {
  uint64_t offset = 0;
  if (__builtin_mul_overflow(uint64_t{list.pages[i]}, list.stride_bytes, &offset) ||
      __builtin_add_overflow(offset, list.base_offset, &offset)) {
    return std::nullopt;
  }
  return offset;
}

}  // namespace

Result<std::unique_ptr<TransferEngine>> TransferEngine::create(
    EngineOptions options, std::vector<std::unique_ptr<Rail>> rails, Clock clock,
    std::function<void(std::span<const std::byte>)> on_message) {
  if (rails.empty() || rails.size() > kRailsMax) {
    return make_error(Code::kInvalidArgument, fmt::format("{} has {} rails; it needs 1 to {}",
                                                          options.name, rails.size(), kRailsMax));
  }
  if (options.stripe_bytes == 0 || options.arrival_slots > 65536 || options.steps_max == 0) {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{}: stripes and steps must be at least 1, arrival slots at most "
                    "65536 (they are {}, {} and {})",
                    options.name, options.stripe_bytes, options.steps_max, options.arrival_slots));
  }
  return std::unique_ptr<TransferEngine>(new TransferEngine(std::make_unique<Core>(
      std::move(options), std::move(rails), std::move(clock), std::move(on_message))));
}

TransferEngine::TransferEngine(std::unique_ptr<Core> core) : core_(std::move(core)) {}
TransferEngine::~TransferEngine() = default;

TransferEngine::Core& TransferEngine::touched() {
  core_->touch();
  return *core_;
}

EngineAddress TransferEngine::address() const {
  EngineAddress address;
  for (const auto& rail : core_->shared.rails) address.rails.push_back(rail->address());
  return address;
}

Result<PeerId> TransferEngine::add_peer(std::string name, const EngineAddress& address) {
  return touched().peers.add(std::move(name), address);
}

void TransferEngine::close_peer(PeerId peer) {
  touched().close_peer(peer);
}

uint32_t TransferEngine::open_paths(PeerId peer) const {
  const Peer* found = core_->peers.find(peer);
  return found == nullptr ? 0 : found->open_count();
}

Result<MemoryId> TransferEngine::add_memory(const MemoryBlock& memory) {
  return touched().regions.add_memory(memory);
}

Result<void> TransferEngine::remove_memory(MemoryId memory) {
  return touched().regions.remove_memory(memory);
}

Result<Grant> TransferEngine::grant(MemoryId memory, std::optional<PeerId> writer) {
  Core& core = touched();
  if (!writer.has_value()) return core.regions.grant(memory, nullptr);
  const Peer* found = core.peers.find(*writer);
  if (found != nullptr) return core.regions.grant(memory, found);
  return make_error(Code::kInvalidArgument, fmt::format("there is no peer {}", writer->value));
}

void TransferEngine::revoke(GrantId grant, std::function<void(bool is_fenced)> on_closed) {
  touched().regions.revoke(grant, std::move(on_closed));
}

Result<TargetId> TransferEngine::add_target(PeerId peer, RegionDescriptor descriptor) {
  Core& core = touched();
  const Peer* found = core.peers.find(peer);
  if (found == nullptr) {
    return make_error(Code::kInvalidArgument, fmt::format("there is no peer {}", peer.value));
  }
  return core.regions.add_target(peer, static_cast<uint32_t>(found->paths.size()),
                                 std::move(descriptor));
}

Result<void> TransferEngine::remove_target(TargetId target) {
  return touched().regions.remove_target(target);
}

Result<void> TransferEngine::expect(Arrival arrival, uint64_t count,
                                    std::function<void()> on_complete) {
  return touched().arrivals.expect(arrival, count, std::move(on_complete));
}

bool TransferEngine::cancel_expected(Arrival arrival) {
  return touched().arrivals.cancel(arrival);
}

Result<TransferId> TransferEngine::begin(TransferOptions options) {
  Core& core = touched();
  const Transfer* transfer = TANDEM_TRY(core.transfers.begin(std::move(options)));
  return transfer->id;
}

Result<void> TransferEngine::write(TransferId id, WritePath path,
                                   std::span<const WriteRange> slices) {
  Core& core = touched();
  Transfer* transfer = TANDEM_TRY(core.transfers.find_open(id));
  const Core::Ends ends = TANDEM_TRY(core.ends_of(path.source, path.target));
  TANDEM_TRY(core.transfers.check_room(slices.size()));
  for (const WriteRange& range : slices) TANDEM_TRY(Core::check_fits(ends, range));
  for (const WriteRange& range : slices) {
    core.transfers.submit(*transfer, {ends.memory, ends.target, range});
  }
  return {};
}

Result<void> TransferEngine::write_pages(TransferId id, WritePath path, const PageList& source,
                                         const PageList& target, uint64_t bytes) {
  if (source.pages.size() != target.pages.size()) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} source pages cannot go to {} target pages",
                                  source.pages.size(), target.pages.size()));
  }
  std::vector<WriteRange> slices;
  slices.reserve(source.pages.size());
  for (size_t i = 0; i < source.pages.size(); ++i) {
    const auto from = place_of(source, i);
    const auto to = place_of(target, i);
    if (!from.has_value() || !to.has_value()) {
      return make_error(
          Code::kInvalidArgument,
          fmt::format("page {} to page {} lies beyond 64 bits", source.pages[i], target.pages[i]));
    }
    slices.push_back({.source_offset = *from, .target_offset = *to, .bytes = bytes});
  }
  return write(id, path, slices);
}

Result<void> TransferEngine::write_imm(TransferId id, TargetId target_id) {
  Core& core = touched();
  Transfer* transfer = TANDEM_TRY(core.transfers.find_open(id));
  if (!transfer->options.arrival.has_value()) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("transfer {} counts nowhere, so it has no immediate", id.value));
  }
  Target* target = TANDEM_TRY(core.target_of(target_id));
  TANDEM_TRY(core.transfers.check_room(1));
  core.transfers.submit(*transfer, {.target = target});
  return {};
}

Result<void> TransferEngine::scatter(TransferId id, MemoryId source,
                                     std::span<const ScatterRange> slices) {
  Core& core = touched();
  Transfer* transfer = TANDEM_TRY(core.transfers.find_open(id));
  TANDEM_TRY(core.transfers.check_room(slices.size()));
  for (const ScatterRange& slice : slices) {
    const Core::Ends ends = TANDEM_TRY(core.ends_of(source, slice.target));
    TANDEM_TRY(Core::check_fits(ends, slice.range));
  }
  for (const ScatterRange& slice : slices) {
    core.transfers.submit(*transfer, {core.regions.find_memory(source),
                                      core.regions.find_target(slice.target), slice.range});
  }
  return {};
}

Result<void> TransferEngine::finish(TransferId id) {
  Core& core = touched();
  Transfer* transfer = TANDEM_TRY(core.transfers.find_open(id));
  transfer->is_finished = true;
  core.transfers.settle(*transfer);
  return {};
}

void TransferEngine::cancel(TransferId id) {
  Core& core = touched();
  Transfer* transfer = core.transfers.find(id);
  if (transfer == nullptr) return;
  core.transfers.fail(*transfer, make_error(Code::kCancelled, "cancelled"));
  core.transfers.settle(*transfer);
}

Result<void> TransferEngine::wait_for_room(uint32_t slices, std::function<void()> on_room) {
  Core& core = touched();
  if (slices > core.shared.options.slices_max) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} slices will never fit: {} takes {}", slices,
                                  core.shared.options.name, core.shared.options.slices_max));
  }
  if (core.on_room) {
    return make_error(Code::kFailedPrecondition,
                      core.shared.options.name + ": somebody waits for room already");
  }
  core.room_slices = slices;
  core.on_room = std::move(on_room);
  return {};
}

Result<TransferId> TransferEngine::barrier(std::span<const TargetId> targets,
                                           TransferOptions options) {
  Core& core = touched();
  if (!options.arrival.has_value()) {
    return make_error(Code::kInvalidArgument, "a barrier needs an arrival to count");
  }
  TANDEM_TRY(core.transfers.check_room(targets.size()));
  for (TargetId target : targets) TANDEM_TRY(core.target_of(target));
  Transfer* transfer = TANDEM_TRY(core.transfers.begin(std::move(options)));
  for (TargetId target : targets) {
    core.transfers.submit(*transfer, {.target = core.regions.find_target(target)});
  }
  const TransferId id = transfer->id;
  TANDEM_TRY(finish(id));
  return id;
}

Result<void> TransferEngine::send(PeerId peer, std::span<const std::byte> message,
                                  std::function<void(const Result<void>&)> on_end) {
  Core& core = touched();
  if (message.size() > message_bytes_max()) {
    return make_error(Code::kInvalidArgument, fmt::format("a message of {} bytes is longer than {}",
                                                          message.size(), message_bytes_max()));
  }
  if (core.messenger.messages_count() >= core.shared.options.messages_max) {
    return make_error(Code::kResourceExhausted,
                      fmt::format("{} messages of {} wait to be sent; try again later",
                                  core.messenger.messages_count(), core.shared.options.name));
  }
  core.messenger.send(
      {.peer = peer,
       .bytes = encode(EngineMessage(UserMessage{Bytes(message.begin(), message.end())})),
       .on_end = std::move(on_end)});
  return {};
}

uint32_t TransferEngine::message_bytes_max() const {
  uint32_t bytes = core_->shared.rails.front()->limits().message_bytes_max;
  for (const auto& rail : core_->shared.rails) {
    bytes = std::min(bytes, rail->limits().message_bytes_max);
  }
  return bytes - kUserMessageOverheadBytes;
}

bool TransferEngine::progress() {
  return core_->progress();
}

std::optional<TimePoint> TransferEngine::next_deadline() const {
  return core_->next_deadline();
}

std::span<const std::unique_ptr<Rail>> TransferEngine::rails() const {
  return core_->shared.rails;
}

const EngineCounts& TransferEngine::counts() const {
  return core_->shared.counts;
}

const ArrivalCounts& TransferEngine::arrivals() const {
  return core_->arrivals.counts();
}

uint32_t TransferEngine::transfers_count() const {
  return core_->transfers.transfers_count();
}

uint32_t TransferEngine::slices_count() const {
  return core_->transfers.slices_count();
}

}  // namespace tandem::transfer
