#include "comm/broadcast/broadcast.h"

#include "base/check.h"
#include "comm/peers.h"

namespace tandem::comm {
namespace {

constexpr size_t kLengthBytes = 64;  // a cache line before every message

size_t buffer_bytes(size_t message_bytes_max) {
  return kLengthBytes + (message_bytes_max + kLengthBytes - 1) / kLengthBytes * kLengthBytes;
}

}  // namespace

Result<Broadcast> Broadcast::create(SymmetricHeap& heap, size_t message_bytes_max) {
  const size_t buffers = TANDEM_TRY(heap.allocate(2 * buffer_bytes(message_bytes_max)));
  const Flag sent = TANDEM_TRY(heap.allocate_flags(1, WaitKind::kBroadcast));
  const Flag done = TANDEM_TRY(heap.allocate_flags(heap.ranks_count(), WaitKind::kBroadcast));
  return Broadcast(heap, message_bytes_max, buffers, sent, done);
}

size_t Broadcast::buffer() const {
  return buffers_ + epoch_ % 2 * buffer_bytes(bytes_max_);
}

Result<void> Broadcast::send(std::span<const std::byte> message) {
  TANDEM_CHECK(heap_->rank() == 0, "rank 0 sends");
  TANDEM_CHECK(message.size() <= bytes_max_, "no message is longer than announced");
  ++epoch_;
  if (epoch_ > 2) TANDEM_TRY(wait_for_peers(*heap_, done_, epoch_ - 2));
  const uint64_t length = message.size();
  for_each_peer(*heap_, [&](int peer) {
    heap_->put(peer, buffer(), std::as_bytes(std::span(&length, 1)));
    heap_->put(peer, buffer() + kLengthBytes, message);
    heap_->signal(peer, sent_, epoch_);
  });
  return {};
}

Result<std::span<const std::byte>> Broadcast::receive() {
  TANDEM_CHECK(heap_->rank() != 0, "the others receive");
  heap_->signal(0, SymmetricHeap::flag_at(done_, heap_->rank()), epoch_);
  ++epoch_;
  TANDEM_TRY(heap_->wait_idle(sent_, epoch_));
  const uint64_t length = *heap_->local<const uint64_t>(buffer());
  if (length > bytes_max_) {
    return make_error(Code::kDataLoss, heap_->health().name(0) + " sent an impossible message");
  }
  return std::span(heap_->local<const std::byte>(buffer() + kLengthBytes), length);
}

}  // namespace tandem::comm
