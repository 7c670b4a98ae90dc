#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/result.h"
#include "transfer/arrival_table.h"
#include "transfer/rail.h"

namespace tandem::transfer {

using Bytes = std::vector<std::byte>;

inline constexpr uint32_t kRailsMax = 16;
inline constexpr uint32_t kRailAddressBytesMax = 256;

/// Where an engine is reached: one address per rail. Rail i of one engine talks to rail i of
/// another; those that only one side has stay unused.
struct EngineAddress {
  std::vector<Bytes> rails;
  bool operator==(const EngineAddress&) const = default;
};

/// What a peer needs to write to a region: its size, and a key per rail.
struct RegionDescriptor {
  uint64_t bytes = 0;
  std::vector<RemoteKey> rails;
  bool operator==(const RegionDescriptor&) const = default;
};

/// Both are what travels in a control message: little-endian, with a version in front. Reading
/// takes any bytes: kInvalidArgument unless they are exactly one such value.
Bytes encode(const EngineAddress& address);
Bytes encode(const RegionDescriptor& descriptor);
Result<EngineAddress> decode_address(std::span<const std::byte> bytes);
Result<RegionDescriptor> decode_region(std::span<const std::byte> bytes);

/// Asks the owner of these keys to close them on one rail, because the path of that rail was lost
/// with writes whose fate is unknown; and then, if asked, how far the wait for an immediate is.
/// Only who was given a key knows it.
struct FenceRequest {
  uint64_t id = 0;
  uint32_t rail = 0;
  std::vector<uint64_t> keys;
  std::optional<uint32_t> immediate;
  EngineAddress reply_to;
  bool operator==(const FenceRequest&) const = default;
};
inline constexpr uint32_t kFenceKeysMax = 256;

struct FenceReply {
  uint64_t id = 0;
  bool fenced = false;   ///< False: this rail cannot.
  ArrivalState arrival;  ///< Of the immediate.
  bool operator==(const FenceReply&) const = default;
};

struct UserMessage {
  Bytes bytes;
  bool operator==(const UserMessage&) const = default;
};

/// What two engines send each other as messages of a rail.
using EngineMessage = std::variant<UserMessage, FenceRequest, FenceReply>;
inline constexpr uint32_t kUserMessageOverheadBytes = 2;

Bytes encode(const EngineMessage& message);
Result<EngineMessage> decode_message(std::span<const std::byte> bytes);

}  // namespace tandem::transfer
