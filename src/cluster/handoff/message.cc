#include "cluster/handoff/message.h"

#include <algorithm>

#include "base/bytes.h"

namespace tandem::cluster::handoff {
namespace {

bool is_printable(char c) {
  return c >= ' ' && c <= '~';
}

using Writer = ByteWriter<std::vector<std::byte>>;

struct PutBody {
  Writer& writer;
  const MessageLimits& limits;

  void operator()(const Start& start) {
    writer.put_list(start.tokens, [&](TokenId id) { writer.put(static_cast<uint32_t>(id)); });
    writer.put(start.first_position);
    writer.put_list(start.pages, [&](PageId page) { writer.put(page.value); });
    writer.put_list(start.writes, [&](uint32_t count) { writer.put(count); });
    writer.put(start.sidecar_first);
    writer.put_text(start.cache_salt);
    writer.put(start.time_left_us);
  }
  void operator()(const Cancel&) {}
  void operator()(const Accepted&) {}
  void operator()(const Failed& failed) { put(failed.cause); }
  void operator()(const Drained& drained) {
    writer.put(drained.cause.has_value());
    if (drained.cause) put(*drained.cause);
  }
  void operator()(const Heartbeat&) {}
  void operator()(const Ask&) {}

  void put(const Cause& cause) {
    std::string text = cause.text.substr(0, limits.text_bytes_max);
    std::ranges::replace_if(text, [](char c) { return !is_printable(c); }, '?');
    writer.put_enum(cause.code);
    writer.put_text(text);
  }
};

/// At least one item, each in [least, most].
std::vector<uint32_t> take_numbers(ByteReader& reader, uint32_t count_max, uint32_t least,
                                   uint32_t most) {
  auto numbers = reader.take_list(count_max, sizeof(uint32_t), [&] {
    const auto value = reader.take<uint32_t>();
    reader.require(value >= least && value <= most);
    return value;
  });
  reader.require(!numbers.empty());
  return numbers;
}

Start take_start(ByteReader& reader, const MessageLimits& limits) {
  Start start;
  const auto last_token = static_cast<uint32_t>(limits.vocabulary_size) - 1;
  const auto tokens = take_numbers(reader, limits.tokens_max, 0, last_token);
  start.tokens.assign(tokens.begin(), tokens.end());
  start.first_position = reader.take<uint32_t>();
  reader.require(uint64_t{start.first_position} + 1 < start.tokens.size());
  for (const uint32_t page : take_numbers(reader, limits.pages_max, 0, UINT32_MAX)) {
    start.pages.push_back(PageId{page});
  }
  start.writes = take_numbers(reader, limits.ranks_max, 1, UINT32_MAX);
  start.sidecar_first = reader.take<uint64_t>();
  start.cache_salt = reader.take_text(limits.salt_bytes_max);
  start.time_left_us = reader.take<uint64_t>();
  return start;
}

Cause take_cause(ByteReader& reader, const MessageLimits& limits) {
  const Code code = reader.take_enum(Code{}, Code::kInternal);
  Cause cause{code, reader.take_text(limits.text_bytes_max)};
  reader.require(std::ranges::all_of(cause.text, is_printable));
  return cause;
}

Drained take_drained(ByteReader& reader, const MessageLimits& limits) {
  Drained drained;
  if (reader.take_flag()) drained.cause = take_cause(reader, limits);
  return drained;
}

}  // namespace

std::vector<std::byte> encode(const Message& message, const MessageLimits& limits) {
  Writer writer;
  writer.put(static_cast<uint8_t>(message.body.index()));
  writer.put(message.link.value);
  writer.put(message.key.slot);
  writer.put(message.key.epoch);
  std::visit(PutBody{writer, limits}, message.body);
  return writer.take();
}

Result<Message> decode(std::span<const std::byte> bytes, const MessageLimits& limits) {
  ByteReader reader(bytes);
  Message message;
  const auto kind = reader.take<uint8_t>();
  message.link.value = reader.take<uint64_t>();
  message.key.slot = reader.take<uint16_t>();
  message.key.epoch = reader.take<uint64_t>();
  switch (kind) {
    case 0:
      message.body = take_start(reader, limits);
      break;
    case 1:
      message.body = Cancel{};
      break;
    case 2:
      message.body = Accepted{};
      break;
    case 3:
      message.body = Failed{take_cause(reader, limits)};
      break;
    case 4:
      message.body = take_drained(reader, limits);
      break;
    case 5:
      message.body = Heartbeat{};
      break;
    case 6:
      message.body = Ask{};
      break;
    default:
      reader.require(false);
  }
  if (!reader.is_at_end()) {
    return make_error(Code::kDataLoss,
                      "what a peer sent is no hand-off message within the limits; do both run the "
                      "same build with the same model?");
  }
  return message;
}

}  // namespace tandem::cluster::handoff
