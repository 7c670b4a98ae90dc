#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem {

/// Appends fields of a message to a std::string or a std::vector<std::byte>: little-endian
/// integers, and texts and lists behind a 32-bit count.
template <typename Buffer>
class ByteWriter {
 public:
  template <std::unsigned_integral Int>
  void put(Int value) {
    for (size_t i = 0; i < sizeof(Int); ++i) {
      put_byte(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void put_float(float value) { put(std::bit_cast<uint32_t>(value)); }
  /// An enum as one byte.
  template <typename Enum>
    requires std::is_enum_v<Enum>
  void put_enum(Enum value) {
    put(static_cast<uint8_t>(value));
  }
  /// Without a count.
  void put_bytes(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) put_byte(static_cast<uint8_t>(byte));
  }
  void put_text(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  /// The count, then put_item(item) for each.
  template <typename Items, typename PutItem>
  void put_list(const Items& items, PutItem put_item) {
    put(static_cast<uint32_t>(items.size()));
    for (const auto& item : items) put_item(item);
  }

  Buffer take() { return std::move(buffer_); }

 private:
  void put_byte(uint8_t byte) { buffer_.push_back(static_cast<typename Buffer::value_type>(byte)); }
  Buffer buffer_;
};

/// Takes the fields from the front of bytes that a peer sent. What is not there, and what
/// require() refuses, ends it: from then on it is not ok, and every field is 0 or empty. So one
/// look at is_at_end() after the last field is enough. Allocates in proportion to the bytes.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  explicit ByteReader(std::string_view bytes) : rest_(std::as_bytes(std::span(bytes))) {}

  template <std::unsigned_integral Int>
  Int take() {
    uint64_t value = 0;
    const std::span<const std::byte> bytes = take_bytes(sizeof(Int));
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    }
    return static_cast<Int>(value);
  }
  /// A byte that is 0 or 1.
  bool take_flag() {
    const auto value = take<uint8_t>();
    return require(value <= 1) && value == 1;
  }
  float take_float() { return std::bit_cast<float>(take<uint32_t>()); }
  /// In [first, last] of those of an enum.
  template <typename Enum>
  Enum take_enum(Enum first, Enum last) {
    const auto value = take<uint8_t>();
    require(value >= static_cast<uint8_t>(first) && value <= static_cast<uint8_t>(last));
    return ok_ ? static_cast<Enum>(value) : first;
  }
  std::span<const std::byte> take_bytes(size_t count) {
    if (!require(count <= rest_.size())) return {};
    const std::span<const std::byte> bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }
  std::string take_text(uint32_t bytes_max) {
    const auto count = take<uint32_t>();
    if (!require(count <= bytes_max)) return {};
    const std::span<const std::byte> bytes = take_bytes(count);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  /// A count of at most `count_max`, then take_item() for each; an item has at least
  /// `item_bytes_min` bytes.
  template <typename TakeItem>
  auto take_list(uint32_t count_max, size_t item_bytes_min, TakeItem take_item) {
    std::vector<decltype(take_item())> items;
    const auto count = take<uint32_t>();
    if (!require(count <= count_max && count <= rest_.size() / item_bytes_min)) return items;
    items.reserve(count);
    for (uint32_t i = 0; i < count && ok_; ++i) items.push_back(take_item());
    return items;
  }

  /// Whether all is well so far.
  bool require(bool condition) {
    ok_ = ok_ && condition;
    if (!ok_) rest_ = {};
    return ok_;
  }
  bool ok() const { return ok_; }
  std::span<const std::byte> rest() const { return rest_; }
  bool is_at_end() const { return ok_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace tandem
