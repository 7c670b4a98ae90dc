#include "comm/connection.h"

#include <array>
#include <cstring>

namespace tandem::comm {
namespace {

/// A welcome for 1024 ranks with the longest host names stays below this.
constexpr size_t kMessageBytesMax = 512 * 1024;
constexpr auto kLastKind = static_cast<unsigned char>(Message::Kind::kDied);

void append_u32(std::string& bytes, size_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
}

Result<uint32_t> take_u32(std::string_view& bytes) {
  if (bytes.size() < 4) return make_error(Code::kDataLoss, "a message is cut off");
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  bytes.remove_prefix(4);
  return value;
}

}  // namespace

std::string encode(const Message& message) {
  std::string body;
  body.push_back(static_cast<char>(message.kind));
  append_u32(body, message.rank);
  append_u32(body, message.parts.size());
  for (const std::string& part : message.parts) {
    append_u32(body, part.size());
    body += part;
  }
  std::string bytes;
  append_u32(bytes, body.size());
  return bytes + body;
}

Result<Message> decode(std::string_view bytes) {
  if (bytes.empty() || static_cast<unsigned char>(bytes[0]) > kLastKind) {
    return make_error(Code::kDataLoss, "a message of unknown kind");
  }
  Message message;
  message.kind = static_cast<Message::Kind>(bytes[0]);
  bytes.remove_prefix(1);
  message.rank = TANDEM_TRY(take_u32(bytes));
  const uint32_t parts_count = TANDEM_TRY(take_u32(bytes));
  for (uint32_t i = 0; i < parts_count; ++i) {
    const uint32_t length = TANDEM_TRY(take_u32(bytes));
    if (length > bytes.size()) return make_error(Code::kDataLoss, "a message is cut off");
    message.parts.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  if (!bytes.empty()) return make_error(Code::kDataLoss, "a message has bytes after its end");
  return message;
}

Result<void> Connection::send(const Message& message, io::Deadline deadline) {
  const std::string bytes = encode(message);
  return socket_.send(std::as_bytes(std::span(bytes)), deadline);
}

Result<Message> Connection::receive(io::Deadline deadline) {
  while (true) {
    std::optional<Message> message = TANDEM_TRY(take());
    if (message.has_value()) return std::move(*message);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return make_error(Code::kDeadlineExceeded, "the peer is silent");
    const int waiting = descriptor();
    io::wait_readable(std::span(&waiting, 1), std::min(left, std::chrono::milliseconds(60'000)));
  }
}

Result<std::optional<Message>> Connection::take() {
  std::optional<Error> ended;
  std::array<std::byte, 4096> buffer;
  while (arrived_.size() <= kMessageBytesMax + 4) {
    const auto received = socket_.receive_some(buffer);
    // What came before the end still counts: a departure is followed by one.
    if (!received.ok()) ended = received.error();
    if (!received.ok() || *received == 0) break;
    arrived_.append(reinterpret_cast<const char*>(buffer.data()), *received);
  }
  std::string_view rest = arrived_;
  if (rest.size() >= 4) {
    const uint32_t length = *take_u32(rest);
    if (length > kMessageBytesMax) {
      return make_error(Code::kDataLoss, "the peer does not speak this protocol");
    }
    if (rest.size() >= length) {
      std::optional<Message> message = TANDEM_TRY(decode(rest.substr(0, length)));
      arrived_.erase(0, 4 + size_t{length});
      return message;
    }
  }
  if (ended.has_value()) return *ended;
  return std::optional<Message>();
}

}  // namespace tandem::comm
