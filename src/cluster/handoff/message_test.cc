// Goal: a message arrives as it was sent, and what is no message within the limits is refused.
// Method: one of every kind there and back; each cut at every length, with a byte too many, and
// with every field in turn beyond its limit.
#include "cluster/handoff/message.h"

#include <gtest/gtest.h>

#include <functional>

namespace tandem::cluster::handoff {
namespace {

constexpr MessageLimits kLimits{.tokens_max = 9,
                                .vocabulary_size = 50,
                                .pages_max = 4,
                                .ranks_max = 2,
                                .salt_bytes_max = 5,
                                .text_bytes_max = 8};

Start start() {
  return {.tokens = {49, 0, 7, 8},
          .first_position = 2,
          .pages = {PageId{4'000'000'000}, PageId{0}},
          .writes = {1, 4'000'000'000},
          .sidecar_first = 0xfedc'ba98'7654'3210,
          .cache_salt = std::string("\0salt", 5),
          .time_left_us = 1ull << 40};
}

std::vector<Message> one_of_each() {
  const LinkId link{0xfedc'ba98'7654'3210};
  const Key key{65535, 0x1234'5678'9abc'def0};
  return {{link, key, start()},       {link, key, Cancel{}},
          {link, key, Accepted{}},    {link, key, Failed{{Code::kInternal, "no ~ room"}}},
          {link, key, Drained{}},     {link, key, Drained{Cause{Code::kInvalidArgument, ""}}},
          {link, Key{}, Heartbeat{}}, {link, key, Ask{}}};
}

bool is_refused(const Message& message) {
  const auto result = decode(encode(message, kLimits), kLimits);
  return !result.ok() && result.error().code == Code::kDataLoss;
}

TEST(HandoffMessage, ArrivesAsItWasSent) {
  for (Message message : one_of_each()) {
    if (auto* failed = std::get_if<Failed>(&message.body)) failed->cause.text = "no ~room";
    const auto got = decode(encode(message, kLimits), kLimits);
    ASSERT_TRUE(got.ok()) << "kind " << message.body.index();
    EXPECT_EQ(*got, message) << "kind " << message.body.index();
  }
}

TEST(HandoffMessage, TextsOfCausesAreCutAndPrintable) {
  const Message sent{LinkId{1}, Key{},
                     Failed{{Code::kUnavailable,
                             "a\nb\x80"
                             "defghij"}}};
  const auto got = decode(encode(sent, kLimits), kLimits);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(std::get<Failed>(got->body).cause.text, "a?b?defg");
}

TEST(HandoffMessage, WhatIsCutOrTooLongIsRefused) {
  for (const Message& message : one_of_each()) {
    std::vector<std::byte> bytes = encode(message, kLimits);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode(std::span(bytes).first(size), kLimits).ok())
          << "kind " << message.body.index() << ", " << size << " bytes";
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes, kLimits).ok());
  }
}

TEST(HandoffMessage, EveryFieldHasItsLimit) {
  const std::vector<std::function<void(Start&)>> wrongs = {
      [](Start& s) { s.tokens.assign(10, 1); },
      [](Start& s) { s.tokens.clear(); },
      [](Start& s) { s.tokens[1] = 50; },
      [](Start& s) { s.tokens[1] = -1; },
      [](Start& s) { s.first_position = 3; },  // an empty range is no hand-off
      [](Start& s) { s.first_position = UINT32_MAX; },
      [](Start& s) { s.pages.assign(5, PageId{1}); },
      [](Start& s) { s.pages.clear(); },
      [](Start& s) { s.writes.assign(3, 1); },
      [](Start& s) { s.writes.clear(); },
      [](Start& s) { s.writes[0] = 0; },
      [](Start& s) { s.cache_salt = "123456"; },
  };
  for (size_t i = 0; i < wrongs.size(); ++i) {
    Start wrong = start();
    wrongs[i](wrong);
    EXPECT_TRUE(is_refused({LinkId{1}, Key{}, wrong})) << "case " << i;
  }
}

TEST(HandoffMessage, UnknownKindsCodesAndFlagsAreRefused) {
  std::vector<std::byte> bytes = encode({LinkId{1}, Key{}, Cancel{}}, kLimits);
  bytes[0] = std::byte{7};
  EXPECT_FALSE(decode(bytes, kLimits).ok());
  bytes = encode({LinkId{1}, Key{}, Drained{}}, kLimits);
  bytes.back() = std::byte{2};
  EXPECT_FALSE(decode(bytes, kLimits).ok());
  bytes = encode({LinkId{1}, Key{}, Failed{{Code::kInternal, "x"}}}, kLimits);
  const size_t code = bytes.size() - 6;  // before the text and its 32-bit length
  ASSERT_EQ(bytes[code], static_cast<std::byte>(Code::kInternal));
  bytes[code] = static_cast<std::byte>(static_cast<int>(Code::kInternal) + 1);
  EXPECT_FALSE(decode(bytes, kLimits).ok());
  bytes[code] = std::byte{0};
  bytes.back() = std::byte{'\n'};
  EXPECT_FALSE(decode(bytes, kLimits).ok());
}

}  // namespace
}  // namespace tandem::cluster::handoff
