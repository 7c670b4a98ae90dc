#include "transfer/wire.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace tandem::transfer {
namespace {

constexpr uint8_t kVersion = 1;

enum class Kind : uint8_t { kAddress = 1, kRegion, kUserMessage, kFenceRequest, kFenceReply };

class Writer {
 public:
  explicit Writer(Kind kind) {
    put<uint8_t>(kVersion);
    put(static_cast<uint8_t>(kind));
  }
  template <typename Int>
  void put(Int value) {
    for (size_t i = 0; i < sizeof(Int); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Reads with one check at the end: past the end, everything is 0 and ok() turns false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <typename Int>
  Int get() {
    uint64_t value = 0;
    const std::span<const std::byte> bytes = get_bytes(sizeof(Int));
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    }
    return static_cast<Int>(value);
  }
  /// None, and no longer ok, when there are fewer.
  std::span<const std::byte> get_bytes(size_t count) {
    if (count > rest_.size()) {
      is_short_ = true;
      rest_ = {};
      return {};
    }
    const std::span<const std::byte> bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }
  std::span<const std::byte> rest() const { return rest_; }
  bool is_short() const { return is_short_; }
  bool is_whole() const { return !is_short_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool is_short_ = false;
};

Error malformed(std::string_view what, size_t bytes) {
  return make_error(Code::kInvalidArgument,
                    fmt::format("{} bytes from a peer are no {} of version {}; both sides must run "
                                "the same release",
                                bytes, what, kVersion));
}

bool starts_as(Reader& reader, Kind kind) {
  const bool is_version = reader.get<uint8_t>() == kVersion;
  return reader.get<uint8_t>() == static_cast<uint8_t>(kind) && is_version;
}

void put_address(Writer& writer, const EngineAddress& address) {
  writer.put(static_cast<uint8_t>(address.rails.size()));
  for (const Bytes& rail : address.rails) {
    writer.put(static_cast<uint16_t>(rail.size()));
    writer.put_bytes(rail);
  }
}

/// None when a limit is exceeded.
std::optional<EngineAddress> get_address(Reader& reader) {
  const uint32_t count = reader.get<uint8_t>();
  if (count > kRailsMax || count == 0) return std::nullopt;
  EngineAddress address;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t length = reader.get<uint16_t>();
    if (length > kRailAddressBytesMax) return std::nullopt;
    const std::span<const std::byte> bytes = reader.get_bytes(length);
    address.rails.emplace_back(bytes.begin(), bytes.end());
  }
  return address;
}

struct Encode {
  Bytes operator()(const UserMessage& message) const {
    Writer writer(Kind::kUserMessage);
    writer.put_bytes(message.bytes);
    return writer.take();
  }
  Bytes operator()(const FenceRequest& request) const {
    Writer writer(Kind::kFenceRequest);
    writer.put(request.id);
    writer.put(static_cast<uint8_t>(request.rail));
    writer.put(static_cast<uint16_t>(request.keys.size()));
    for (uint64_t key : request.keys) writer.put(key);
    writer.put(static_cast<uint8_t>(request.immediate.has_value()));
    if (request.immediate.has_value()) writer.put(*request.immediate);
    put_address(writer, request.reply_to);
    return writer.take();
  }
  Bytes operator()(const FenceReply& reply) const {
    Writer writer(Kind::kFenceReply);
    writer.put(reply.id);
    writer.put(static_cast<uint8_t>(reply.fenced));
    writer.put(static_cast<uint8_t>(reply.arrival.status));
    writer.put(reply.arrival.counted);
    return writer.take();
  }
};

Result<EngineMessage> decode_fence_request(Reader& reader, size_t bytes) {
  FenceRequest request{.id = reader.get<uint64_t>(), .rail = reader.get<uint8_t>()};
  const uint32_t keys = reader.get<uint16_t>();
  if (keys == 0 || keys > kFenceKeysMax || request.rail >= kRailsMax) {
    return malformed("fence request", bytes);
  }
  for (uint32_t i = 0; i < keys && !reader.is_short(); ++i) {
    request.keys.push_back(reader.get<uint64_t>());
  }
  const uint8_t has_immediate = reader.get<uint8_t>();
  if (has_immediate == 1) request.immediate = reader.get<uint32_t>();
  auto address = get_address(reader);
  if (has_immediate > 1 || !address.has_value() || !reader.is_whole()) {
    return malformed("fence request", bytes);
  }
  request.reply_to = *std::move(address);
  return EngineMessage(std::move(request));
}

}  // namespace

Bytes encode(const EngineAddress& address) {
  Writer writer(Kind::kAddress);
  put_address(writer, address);
  return writer.take();
}

Bytes encode(const RegionDescriptor& descriptor) {
  Writer writer(Kind::kRegion);
  writer.put(descriptor.bytes);
  writer.put(static_cast<uint8_t>(descriptor.rails.size()));
  for (const RemoteKey& rail : descriptor.rails) {
    writer.put(rail.key);
    writer.put(rail.base);
  }
  return writer.take();
}

Result<EngineAddress> decode_address(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  if (!starts_as(reader, Kind::kAddress)) return malformed("engine address", bytes.size());
  auto address = get_address(reader);
  if (!address.has_value() || !reader.is_whole()) return malformed("engine address", bytes.size());
  return *std::move(address);
}

Result<RegionDescriptor> decode_region(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  if (!starts_as(reader, Kind::kRegion)) return malformed("region descriptor", bytes.size());
  RegionDescriptor descriptor{.bytes = reader.get<uint64_t>()};
  const uint32_t count = reader.get<uint8_t>();
  if (count > kRailsMax || count == 0) return malformed("region descriptor", bytes.size());
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t key = reader.get<uint64_t>();
    descriptor.rails.push_back({.key = key, .base = reader.get<uint64_t>()});
  }
  if (!reader.is_whole()) return malformed("region descriptor", bytes.size());
  return descriptor;
}

Bytes encode(const EngineMessage& message) {
  return std::visit(Encode{}, message);
}

Result<EngineMessage> decode_message(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  if (reader.get<uint8_t>() != kVersion) return malformed("message", bytes.size());
  switch (static_cast<Kind>(reader.get<uint8_t>())) {
    case Kind::kUserMessage:
      return EngineMessage(UserMessage{{reader.rest().begin(), reader.rest().end()}});
    case Kind::kFenceRequest:
      return decode_fence_request(reader, bytes.size());
    case Kind::kFenceReply: {
      FenceReply reply{.id = reader.get<uint64_t>()};
      const uint8_t fenced = reader.get<uint8_t>();
      const uint8_t status = reader.get<uint8_t>();
      reply.arrival.counted = reader.get<uint64_t>();
      if (fenced > 1 || status > static_cast<uint8_t>(ArrivalState::Status::kGone) ||
          !reader.is_whole()) {
        return malformed("fence reply", bytes.size());
      }
      reply.fenced = fenced == 1;
      reply.arrival.status = static_cast<ArrivalState::Status>(status);
      return EngineMessage(reply);
    }
    default:
      return malformed("message", bytes.size());
  }
}

}  // namespace tandem::transfer
