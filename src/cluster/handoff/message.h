#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cluster/handoff/key.h"

namespace tandem::cluster::handoff {

// The control messages of docs/handoff.md. Any may be lost, late, repeated or overtaken.

/// Decoder: begin, unless this or a later epoch of the slot was seen.
struct Start {
  std::vector<TokenId> tokens;   ///< the whole prompt, n of them, n >= 2
  uint32_t first_position = 0;   ///< of [first_position, n - 1), which is to be written
  std::vector<PageId> pages;     ///< of the decoder, in order; how they cover the range is the
                                 ///< plan's business
  std::vector<uint32_t> writes;  ///< [target ranks] that each will count, >= 1
  /// Where its sidecar records begin on each target rank, in records; their order is SidecarMap's.
  uint64_t sidecar_first = 0;
  std::string cache_salt;     ///< prefixes are shared only between equal salts
  uint64_t time_left_us = 0;  ///< until the decoder gives up
  bool operator==(const Start&) const = default;
};

/// Decoder: stop, and say when drained.
struct Cancel {
  bool operator==(const Cancel&) const = default;
};

/// Prefiller: Start is here.
struct Accepted {
  bool operator==(const Accepted&) const = default;
};

/// What went wrong at a peer. The text is for people: printable ASCII.
struct Cause {
  Code code = Code::kInternal;
  std::string text;
  bool operator==(const Cause&) const = default;
};

/// Prefiller: it will not be completed; writes may be under way.
struct Failed {
  Cause cause;
  bool operator==(const Failed&) const = default;
};

/// Prefiller: no write of this epoch will land any more.
struct Drained {
  std::optional<Cause> cause;  ///< none when all was delivered, and when it was cancelled
  bool operator==(const Drained&) const = default;
};

/// Both: alive. Its key means nothing.
struct Heartbeat {
  bool operator==(const Heartbeat&) const = default;
};

/// Decoder: has it failed or drained? Stops nothing.
struct Ask {
  bool operator==(const Ask&) const = default;
};

struct Message {
  LinkId link;
  Key key;
  std::variant<Start, Cancel, Accepted, Failed, Drained, Heartbeat, Ask> body;
  bool operator==(const Message&) const = default;
};

struct MessageLimits {
  uint32_t tokens_max = 1 << 20;      ///< of a prompt
  int32_t vocabulary_size = 1 << 20;  ///< token ids are below
  uint32_t pages_max = 1 << 18;
  uint32_t ranks_max = 256;
  uint32_t salt_bytes_max = 1024;
  uint32_t text_bytes_max = 1024;  ///< of a cause; longer ones are cut by encode()
};

/// The bytes of a message: little-endian fields in the order above, lists with a 32-bit count.
/// Between processes of one build, which the handshake sees to; there are no optional fields and
/// no versions, so everything that is not exactly a message can be refused. That, and a decoder
/// that links nothing, is why this is no protobuf; a Channel carries the bytes.
std::vector<std::byte> encode(const Message& message, const MessageLimits& limits);

/// kDataLoss for anything but the bytes of one message within the limits. What is returned is safe
/// to use: a non-empty range inside the prompt, known token ids, counts of at least one. Allocates
/// in proportion to `bytes`.
Result<Message> decode(std::span<const std::byte> bytes, const MessageLimits& limits);

}  // namespace tandem::cluster::handoff
