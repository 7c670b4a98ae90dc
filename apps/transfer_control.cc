#include "apps/transfer_control.h"

namespace tandem::apps {
namespace {

/// Longer than any round takes.
io::Deadline deadline() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(2);
}

constexpr uint64_t kBytesMax = 1 << 20;

}  // namespace

Error TransferControl::other_version() {
  return make_error(Code::kInvalidArgument,
                    "the other side speaks differently; do both run this version of tandem?");
}

Result<void> TransferControl::send(std::span<const std::byte> bytes) {
  const uint64_t count = bytes.size();
  TANDEM_TRY(socket_.send(std::as_bytes(std::span(&count, 1)), deadline()));
  return socket_.send(bytes, deadline());
}

Result<std::vector<std::byte>> TransferControl::receive() {
  uint64_t count = 0;
  TANDEM_TRY(socket_.receive(std::as_writable_bytes(std::span(&count, 1)), deadline()));
  if (count > kBytesMax) return other_version();
  std::vector<std::byte> bytes(count);
  TANDEM_TRY(socket_.receive(bytes, deadline()));
  return bytes;
}

}  // namespace tandem::apps
