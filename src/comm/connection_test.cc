// Goal: a message survives the way through bytes, and no bytes of a peer can do harm. Method: round
// trips; every prefix of a message, every changed byte and random bytes are decoded; a message that
// arrives in pieces before its sender ends is still read.
#include "comm/connection.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::comm {
namespace {

const Message kMessage{Message::Kind::kDied, 3, {"", "out of luck", std::string(300, 'x')}};

TEST(Message, SurvivesTheWayThroughBytes) {
  const std::string bytes = encode(kMessage);
  const auto back = decode(std::string_view(bytes).substr(4));
  ASSERT_TRUE(back.ok()) << back.error().what;
  EXPECT_EQ(back->kind, kMessage.kind);
  EXPECT_EQ(back->rank, kMessage.rank);
  EXPECT_EQ(back->parts, kMessage.parts);
}

TEST(Message, DamageIsAnErrorOrAnotherMessageButNeverHarm) {
  const std::string body = encode(kMessage).substr(4);
  for (size_t length = 0; length < body.size(); ++length) {
    EXPECT_FALSE(decode(std::string_view(body).substr(0, length)).ok());
  }
  EXPECT_FALSE(decode(body + "x").ok());
  for (size_t at = 0; at < body.size(); ++at) {
    std::string damaged = body;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
    (void)decode(damaged).ok();
  }
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 2000; ++i) {
    std::string noise(random() % 40, '\0');
    for (char& c : noise) c = static_cast<char>(random() % 3);
    (void)decode(noise).ok();
  }
}

TEST(Connection, ReadsWhatCameBeforeTheEnd) {
  auto [sender, receiver] = *io::Socket::make_pair();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  Connection connection(std::move(receiver));
  EXPECT_FALSE(connection.take()->has_value());
  {
    io::Socket gone = std::move(sender);
    std::string bytes = encode(kMessage) + encode({.rank = 9});
    for (; !bytes.empty(); bytes.erase(0, 7)) {
      const auto piece = std::string_view(bytes).substr(0, 7);
      ASSERT_TRUE(gone.send(std::as_bytes(std::span(piece)), deadline).ok());
    }
  }
  EXPECT_EQ(connection.receive(deadline)->parts, kMessage.parts);
  EXPECT_EQ(connection.receive(deadline)->rank, 9u);
  EXPECT_EQ(connection.receive(deadline).error().code, Code::kUnavailable);
}

TEST(Connection, AnAbsurdLengthIsRefusedAtOnce) {
  auto [sender, receiver] = *io::Socket::make_pair();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  ASSERT_TRUE(sender.send(std::as_bytes(std::span("\xff\xff\xff\xff", 4)), deadline).ok());
  EXPECT_EQ(Connection(std::move(receiver)).receive(deadline).error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace tandem::comm
