#include "cluster/handoff/message.h"

#include <algorithm>
#include <concepts>
#include <utility>

namespace tandem::cluster::handoff {
namespace {

constexpr uint8_t kCodes = static_cast<uint8_t>(Code::kInternal) + 1;

bool is_printable(char c) {
  return c >= ' ' && c <= '~';
}

class Writer {
 public:
  explicit Writer(const MessageLimits& limits) : limits_(limits) {}

  template <std::unsigned_integral Int>
  void put(Int value) {
    for (size_t i = 0; i < sizeof(Int); ++i) {
      bytes.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void put(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  }
  template <typename Item, typename Field>
  void put_list(const std::vector<Item>& items, Field field) {
    put(static_cast<uint32_t>(items.size()));
    for (const Item& item : items) put(static_cast<uint32_t>(field(item)));
  }

  void operator()(const Start& start) {
    put_list(start.tokens, [](TokenId token) { return token; });
    put(start.first_position);
    put_list(start.pages, [](PageId page) { return page.value; });
    put_list(start.writes, [](uint32_t count) { return count; });
    put(start.sidecar_first);
    put(start.cache_salt);
    put(start.time_left_us);
  }
  void operator()(const Cancel&) {}
  void operator()(const Accepted&) {}
  void operator()(const Failed& failed) { put(failed.cause); }
  void operator()(const Drained& drained) {
    put(static_cast<uint8_t>(drained.cause.has_value()));
    if (drained.cause) put(*drained.cause);
  }
  void operator()(const Heartbeat&) {}
  void operator()(const Ask&) {}

  std::vector<std::byte> bytes;

 private:
  void put(const Cause& cause) {
    std::string text = cause.text.substr(0, limits_.text_bytes_max);
    std::ranges::replace_if(text, [](char c) { return !is_printable(c); }, '?');
    put(static_cast<uint8_t>(cause.code));
    put(std::string_view(text));
  }
  const MessageLimits& limits_;
};

/// Takes fields from the front; after the first that is not there, or not allowed, nothing counts.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const MessageLimits& limits)
      : rest_(bytes), limits_(limits) {}

  template <std::unsigned_integral Int>
  Int take() {
    if (!require(rest_.size() >= sizeof(Int))) return 0;
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(Int); ++i) {
      value |= static_cast<uint64_t>(rest_[i]) << (8 * i);
    }
    rest_ = rest_.subspan(sizeof(Int));
    return static_cast<Int>(value);
  }
  std::string take_text(uint32_t bytes_max) {
    const auto size = take<uint32_t>();
    if (!require(size <= bytes_max && size <= rest_.size())) return {};
    std::string text(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return text;
  }
  /// At least one item, each in [least, most].
  template <typename Item, typename Make>
  std::vector<Item> take_list(uint32_t count_max, std::pair<uint32_t, uint32_t> range, Make make) {
    const auto count = take<uint32_t>();
    std::vector<Item> items;
    if (!require(count >= 1 && count <= count_max && count <= rest_.size() / sizeof(uint32_t))) {
      return items;
    }
    items.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      const auto value = take<uint32_t>();
      require(value >= range.first && value <= range.second);
      items.push_back(make(value));
    }
    return items;
  }

  Start take_start() {
    Start start;
    const auto last_token = static_cast<uint32_t>(limits_.vocabulary_size) - 1;
    start.tokens = take_list<TokenId>(limits_.tokens_max, {0, last_token},
                                      [](uint32_t value) { return static_cast<TokenId>(value); });
    start.first_position = take<uint32_t>();
    require(uint64_t{start.first_position} + 1 < start.tokens.size());
    start.pages = take_list<PageId>(limits_.pages_max, {0, UINT32_MAX},
                                    [](uint32_t value) { return PageId{value}; });
    start.writes = take_list<uint32_t>(limits_.ranks_max, {1, UINT32_MAX},
                                       [](uint32_t value) { return value; });
    start.sidecar_first = take<uint64_t>();
    start.cache_salt = take_text(limits_.salt_bytes_max);
    start.time_left_us = take<uint64_t>();
    return start;
  }
  Cause take_cause() {
    const auto code = take<uint8_t>();
    require(code < kCodes);
    Cause cause{static_cast<Code>(code), take_text(limits_.text_bytes_max)};
    require(std::ranges::all_of(cause.text, is_printable));
    return cause;
  }
  Drained take_drained() {
    const auto has_cause = take<uint8_t>();
    require(has_cause <= 1);
    Drained drained;
    if (has_cause == 1) drained.cause = take_cause();
    return drained;
  }

  bool require(bool condition) { return good_ = good_ && condition; }
  bool is_at_end() const { return good_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  const MessageLimits& limits_;
  bool good_ = true;
};

}  // namespace

std::vector<std::byte> encode(const Message& message, const MessageLimits& limits) {
  Writer writer(limits);
  writer.put(static_cast<uint8_t>(message.body.index()));
  writer.put(message.link.value);
  writer.put(message.key.slot);
  writer.put(message.key.epoch);
  std::visit(writer, message.body);
  return std::move(writer.bytes);
}

Result<Message> decode(std::span<const std::byte> bytes, const MessageLimits& limits) {
  Reader reader(bytes, limits);
  Message message;
  const auto kind = reader.take<uint8_t>();
  message.link.value = reader.take<uint64_t>();
  message.key.slot = reader.take<uint16_t>();
  message.key.epoch = reader.take<uint64_t>();
  switch (kind) {
    case 0:
      message.body = reader.take_start();
      break;
    case 1:
      message.body = Cancel{};
      break;
    case 2:
      message.body = Accepted{};
      break;
    case 3:
      message.body = Failed{reader.take_cause()};
      break;
    case 4:
      message.body = reader.take_drained();
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
