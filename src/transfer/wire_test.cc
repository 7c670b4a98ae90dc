// Goal: addresses, descriptors and messages survive the wire, and no other bytes pass for them.
// Method: round trips of values at their limits; every truncation, an extra byte, another version
// and another kind are refused.
#include "transfer/wire.h"

#include <gtest/gtest.h>

namespace tandem::transfer {
namespace {

Bytes some_bytes(size_t count, uint8_t first) {
  Bytes bytes;
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(first + i));
  return bytes;
}

EngineAddress address_of(uint32_t rails) {
  EngineAddress address;
  for (uint32_t i = 0; i < rails; ++i) {
    address.rails.push_back(some_bytes(i * 16, static_cast<uint8_t>(i)));
  }
  return address;
}

/// Everything that is nearly `good` must be refused.
template <typename Decode>
void expect_strict(const Bytes& good, Decode decode) {
  for (size_t length = 0; length < good.size(); ++length) {
    const auto cut = decode(std::span(good).first(length));
    ASSERT_FALSE(cut.ok()) << "cut to " << length << " of " << good.size();
    EXPECT_EQ(cut.error().code, Code::kInvalidArgument);
  }
  Bytes bad = good;
  bad.push_back(std::byte{0});
  EXPECT_FALSE(decode(bad).ok()) << "one byte too many";
  for (size_t place : {0, 1}) {
    bad = good;
    bad[place] = std::byte{99};
    EXPECT_FALSE(decode(bad).ok()) << "byte " << place;
  }
}

TEST(Wire, AddressesSurviveAndNothingElsePasses) {
  for (uint32_t rails : {1u, 2u, kRailsMax}) {
    const EngineAddress address = address_of(rails);
    const auto again = decode_address(encode(address));
    ASSERT_TRUE(again.ok()) << again.error().what;
    EXPECT_EQ(*again, address);
    expect_strict(encode(address), [](auto bytes) { return decode_address(bytes); });
  }
  EXPECT_FALSE(decode_address(encode(address_of(kRailsMax + 1))).ok());
  EXPECT_FALSE(decode_address(encode(EngineAddress{})).ok());
  EXPECT_FALSE(
      decode_address(encode(EngineAddress{{some_bytes(kRailAddressBytesMax + 1, 0)}})).ok());
}

TEST(Wire, DescriptorsSurviveAndNothingElsePasses) {
  RegionDescriptor region{.bytes = 0x123456789abcdef0};
  for (uint64_t i = 0; i < kRailsMax; ++i) region.rails.push_back({.key = ~i, .base = i << 40});
  const auto again = decode_region(encode(region));
  ASSERT_TRUE(again.ok()) << again.error().what;
  EXPECT_EQ(*again, region);
  expect_strict(encode(region), [](auto bytes) { return decode_region(bytes); });
  region.rails.push_back({});
  EXPECT_FALSE(decode_region(encode(region)).ok());
}

TEST(Wire, MessagesSurvive) {
  const std::vector<EngineMessage> messages = {
      UserMessage{some_bytes(300, 7)},
      UserMessage{},
      FenceRequest{.id = 5, .rail = 1, .keys = {~0ull, 2}, .reply_to = address_of(3)},
      FenceReply{.id = 1ull << 63,
                 .fenced = true,
                 .arrival = {ArrivalState::Status::kWaiting, 1ull << 40}},
      FenceReply{.id = 9, .fenced = false},
      FenceRequest{.id = 6, .rail = 0, .keys = {3}, .immediate = 77, .reply_to = address_of(1)},
  };
  for (const EngineMessage& message : messages) {
    const auto again = decode_message(encode(message));
    ASSERT_TRUE(again.ok()) << again.error().what;
    EXPECT_EQ(*again, message);
  }
  EXPECT_EQ(encode(messages[1]).size(), kUserMessageOverheadBytes);
  expect_strict(encode(messages[2]), [](auto bytes) { return decode_message(bytes); });
  expect_strict(encode(messages[3]), [](auto bytes) { return decode_message(bytes); });
}

TEST(Wire, MessagesBeyondTheLimitsAreRefused) {
  FenceRequest request{.id = 5, .rail = 1, .keys = {1}, .reply_to = address_of(1)};
  request.keys.assign(kFenceKeysMax + 1, 1);
  EXPECT_FALSE(decode_message(encode(EngineMessage(request))).ok());
  request.keys.clear();
  EXPECT_FALSE(decode_message(encode(EngineMessage(request))).ok());
  request.keys = {1};
  request.rail = kRailsMax;
  EXPECT_FALSE(decode_message(encode(EngineMessage(request))).ok());
  Bytes reply = encode(EngineMessage(FenceReply{.id = 1, .fenced = true}));
  reply[10] = std::byte{2};  // behind version, kind and id
  EXPECT_FALSE(decode_message(reply).ok());
}

}  // namespace
}  // namespace tandem::transfer
