#include "transfer/wire.h"

#include <fmt/format.h>

#include <string_view>

#include "base/bytes.h"

namespace tandem::transfer {
namespace {

constexpr uint8_t kVersion = 1;

enum class Kind : uint8_t { kAddress = 1, kRegion, kUserMessage, kFenceRequest, kFenceReply };

using Writer = ByteWriter<Bytes>;

Writer begin(Kind kind) {
  Writer writer;
  writer.put(kVersion);
  writer.put_enum(kind);
  return writer;
}

Error malformed(std::string_view what, size_t bytes) {
  return make_error(Code::kInvalidArgument,
                    fmt::format("{} bytes from a peer are no {} of version {}; both sides must run "
                                "the same release",
                                bytes, what, kVersion));
}

void take_start(ByteReader& reader, Kind kind) {
  reader.require(reader.take<uint8_t>() == kVersion);
  reader.require(reader.take<uint8_t>() == static_cast<uint8_t>(kind));
}

void put_address(Writer& writer, const EngineAddress& address) {
  writer.put(static_cast<uint8_t>(address.rails.size()));
  for (const Bytes& rail : address.rails) {
    writer.put(static_cast<uint16_t>(rail.size()));
    writer.put_bytes(rail);
  }
}

EngineAddress take_address(ByteReader& reader) {
  const uint32_t count = reader.take<uint8_t>();
  reader.require(count >= 1 && count <= kRailsMax);
  EngineAddress address;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const uint32_t length = reader.take<uint16_t>();
    reader.require(length <= kRailAddressBytesMax);
    const std::span<const std::byte> bytes = reader.take_bytes(length);
    address.rails.emplace_back(bytes.begin(), bytes.end());
  }
  return address;
}

struct Encode {
  Bytes operator()(const UserMessage& message) const {
    Writer writer = begin(Kind::kUserMessage);
    writer.put_bytes(message.bytes);
    return writer.take();
  }
  Bytes operator()(const FenceRequest& request) const {
    Writer writer = begin(Kind::kFenceRequest);
    writer.put(request.id);
    writer.put(static_cast<uint8_t>(request.rail));
    writer.put(static_cast<uint16_t>(request.keys.size()));
    for (uint64_t key : request.keys) writer.put(key);
    writer.put(request.immediate.has_value());
    if (request.immediate.has_value()) writer.put(*request.immediate);
    put_address(writer, request.reply_to);
    return writer.take();
  }
  Bytes operator()(const FenceReply& reply) const {
    Writer writer = begin(Kind::kFenceReply);
    writer.put(reply.id);
    writer.put(reply.fenced);
    writer.put_enum(reply.arrival.status);
    writer.put(reply.arrival.counted);
    return writer.take();
  }
};

FenceRequest take_fence_request(ByteReader& reader) {
  FenceRequest request;
  request.id = reader.take<uint64_t>();
  request.rail = reader.take<uint8_t>();
  reader.require(request.rail < kRailsMax);
  const uint32_t keys = reader.take<uint16_t>();
  reader.require(keys >= 1 && keys <= kFenceKeysMax);
  for (uint32_t i = 0; i < keys && reader.ok(); ++i) {
    request.keys.push_back(reader.take<uint64_t>());
  }
  if (reader.take_flag()) request.immediate = reader.take<uint32_t>();
  request.reply_to = take_address(reader);
  return request;
}

FenceReply take_fence_reply(ByteReader& reader) {
  using Status = ArrivalState::Status;
  FenceReply reply;
  reply.id = reader.take<uint64_t>();
  reply.fenced = reader.take_flag();
  reply.arrival.status = reader.take_enum(Status::kWaiting, Status::kGone);
  reply.arrival.counted = reader.take<uint64_t>();
  return reply;
}

}  // namespace

Bytes encode(const EngineAddress& address) {
  Writer writer = begin(Kind::kAddress);
  put_address(writer, address);
  return writer.take();
}

Bytes encode(const RegionDescriptor& descriptor) {
  Writer writer = begin(Kind::kRegion);
  writer.put(descriptor.bytes);
  writer.put(static_cast<uint8_t>(descriptor.rails.size()));
  for (const RemoteKey& rail : descriptor.rails) {
    writer.put(rail.key);
    writer.put(rail.base);
  }
  return writer.take();
}

Result<EngineAddress> decode_address(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  take_start(reader, Kind::kAddress);
  EngineAddress address = take_address(reader);
  if (!reader.is_at_end()) return malformed("engine address", bytes.size());
  return address;
}

Result<RegionDescriptor> decode_region(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  take_start(reader, Kind::kRegion);
  RegionDescriptor descriptor{.bytes = reader.take<uint64_t>()};
  const uint32_t count = reader.take<uint8_t>();
  reader.require(count >= 1 && count <= kRailsMax);
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const auto key = reader.take<uint64_t>();
    descriptor.rails.push_back({.key = key, .base = reader.take<uint64_t>()});
  }
  if (!reader.is_at_end()) return malformed("region descriptor", bytes.size());
  return descriptor;
}

Bytes encode(const EngineMessage& message) {
  return std::visit(Encode{}, message);
}

Result<EngineMessage> decode_message(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  reader.require(reader.take<uint8_t>() == kVersion);
  EngineMessage message;
  switch (static_cast<Kind>(reader.take<uint8_t>())) {
    case Kind::kUserMessage: {
      const std::span<const std::byte> content = reader.take_bytes(reader.rest().size());
      message = UserMessage{{content.begin(), content.end()}};
      break;
    }
    case Kind::kFenceRequest:
      message = take_fence_request(reader);
      break;
    case Kind::kFenceReply:
      message = take_fence_reply(reader);
      break;
    default:
      reader.require(false);
  }
  if (!reader.is_at_end()) return malformed("message", bytes.size());
  return message;
}

}  // namespace tandem::transfer
