// Goal: processes meet whoever else calls: strangers, silence, another version, other settings and
// a second process of one rank each get one clear answer and hold nobody up; who never came is
// named. Method: this program forks ranks (before it has threads) that only meet, and calls rank 0
// itself with messages that no rank sends.
#include "comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/hello.h"
#include "comm/testing/process_ranks.h"
#include "io/host.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

class RendezvousTest : public testing::Test {
 protected:
  /// A process that only meets, with options that `change` may spoil.
  template <typename Change>
  RankProcess start(int rank, int ranks, Change change) {
    return RankProcess([&] {
      auto options = options_for(address_, rank, ranks);
      change(options);
      return run_rank(options, [](SymmetricHeap&) { return Result<void>(); });
    });
  }
  RankProcess start(int rank, int ranks) {
    return start(rank, ranks, [](RendezvousOptions&) {});
  }

  /// A connection to rank 0, once that listens.
  Connection call() {
    while (true) {
      auto socket = io::Socket::connect_tcp(address_, soon());
      if (socket.ok()) return Connection(std::move(*socket));
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  static io::Deadline soon() { return steady_clock::now() + seconds(10); }

  Hello good_hello(int rank, int ranks) const {
    return {.rank = rank,
            .place = place_here(),
            .fields = {{"protocol version", "1"},
                       {"number of ranks", std::to_string(ranks)},
                       {"heap bytes", std::to_string(1 << 20)},
                       {"model", "tiny"}}};
  }
  /// What rank 0 says to a hello, as one text.
  std::string answer_to(const Hello& hello) {
    Connection connection = call();
    EXPECT_TRUE(connection.send(encode(hello), soon()).ok());
    const auto answer = connection.receive(soon());
    if (!answer.ok()) return answer.error().what;
    EXPECT_EQ(answer->kind, Message::Kind::kRefused);
    return answer->parts.at(0);
  }

  const io::Endpoint address_ = free_endpoint();
  const std::string host_ = io::host_name();
};

TEST_F(RendezvousTest, WhoBringsOtherSettingsLearnsWhichAndTheOthersMeet) {
  RankProcess first = start(0, 3);
  RankProcess second = start(1, 3);
  RankProcess wrong = start(2, 3, [](RendezvousOptions& options) {
    options.heap_bytes = 4096;
    options.settings = {{"model", "large"}, {"dtype", "f32"}};
  });
  EXPECT_THAT(wrong.wait(), AllOf(HasSubstr("heap bytes: rank 2 of host " + host_),
                                  HasSubstr("4096"), HasSubstr("1048576"), HasSubstr("has large"),
                                  HasSubstr("has tiny"), HasSubstr("rank 0 of host " + host_),
                                  HasSubstr("dtype: rank 2"), HasSubstr("has nothing")));
  RankProcess right = start(2, 3);
  for (RankProcess* process : {&first, &second, &right}) EXPECT_EQ(process->wait(), "");
}

TEST_F(RendezvousTest, AnotherVersionIsRefused) {
  RankProcess first = start(0, 2);
  Hello hello = good_hello(1, 2);
  hello.fields[0].second = "0";
  hello.place.host = "old\nhost";
  EXPECT_THAT(answer_to(hello),
              AllOf(HasSubstr("protocol version: rank 1 of host old?host"), HasSubstr("has 0"),
                    HasSubstr("has 1"), HasSubstr("give all the same flags")));
  RankProcess second = start(1, 2);
  for (RankProcess* process : {&first, &second}) EXPECT_EQ(process->wait(), "");
}

TEST_F(RendezvousTest, NoRankOfTheGroupIsRefused) {
  RankProcess first = start(0, 2);
  for (const int rank : {0, 2, 1 << 30}) {
    EXPECT_THAT(answer_to(good_hello(rank, 2)), HasSubstr("is not one of the ranks 1 to 1"));
  }
  RankProcess second = start(1, 2);
  for (RankProcess* process : {&first, &second}) EXPECT_EQ(process->wait(), "");
}

TEST_F(RendezvousTest, OfTwoProcessesOfOneRankOneIsRefusedByName) {
  RankProcess first = start(0, 3);
  std::vector<RankProcess> claimants;
  for (int i = 0; i < 2; ++i) claimants.push_back(start(1, 3));
  std::this_thread::sleep_for(milliseconds(500));  // both have come
  RankProcess third = start(2, 3);
  EXPECT_EQ(first.wait(), "");
  EXPECT_EQ(third.wait(), "");
  std::string told;
  for (RankProcess& claimant : claimants) {
    const std::string one = claimant.wait();
    EXPECT_TRUE(told.empty() || one.empty()) << one;
    told += one;
  }
  EXPECT_THAT(told, HasSubstr("two processes claim one rank: rank 1 of host " + host_));
}

TEST_F(RendezvousTest, WhoHasNotComeIsNamedAndWhoWasRefusedToo) {
  const auto in_a_hurry = [](RendezvousOptions& options) {
    options.start_timeout = milliseconds(1500);
  };
  std::vector<RankProcess> came;
  for (const int rank : {0, 2}) came.push_back(start(rank, 4, in_a_hurry));
  Hello hello = good_hello(3, 4);
  hello.fields[3].second = "large";
  answer_to(hello);
  for (RankProcess& process : came) {
    EXPECT_THAT(process.wait(),
                AllOf(HasSubstr("not come to 127.0.0.1:"),
                      HasSubstr("rank 1 of host " + host_ + ", rank 3 of host " + host_ + ";"),
                      HasSubstr("was refused: the ranks were started differently: model:")));
  }
  EXPECT_THAT(start(1, 2, in_a_hurry).wait(), AllOf(HasSubstr("rank 1 of host " + host_),
                                                    HasSubstr("find rank 0 of host 127.0.0.1")));
}

TEST_F(RendezvousTest, StrangersHoldNobodyUp) {
  const auto start_time = steady_clock::now();
  RankProcess first = start(0, 2);
  std::vector<Connection> silent;
  for (int i = 0; i < 80; ++i) silent.push_back(call());  // more than rank 0 keeps
  const std::string hello = encode(encode(good_hello(1, 2)));
  for (const std::string_view noise :
       {std::string_view("GET / HTTP/1.1\r\n\r\n"), std::string_view("\xff\xff\xff\xff", 4),
        std::string_view("\x05"), std::string_view("\1\0\0\0\x03", 5),
        std::string_view(hello).substr(0, 40)}) {
    auto socket = io::Socket::connect_tcp(address_, soon()).value();
    ASSERT_TRUE(socket.send(std::as_bytes(std::span(noise)), soon()).ok());
  }
  RankProcess second = start(1, 2);
  EXPECT_EQ(first.wait(), "");
  EXPECT_EQ(second.wait(), "");
  EXPECT_LT(steady_clock::now() - start_time, seconds(5));
}

TEST_F(RendezvousTest, ARankThatIsSlowToSpeakIsWaitedFor) {
  RankProcess first = start(0, 2);
  std::optional<Connection> slow(call());
  std::this_thread::sleep_for(milliseconds(2500));  // as if stopped between connecting and hello
  ASSERT_TRUE(slow->send(encode(good_hello(1, 2)), soon()).ok());
  const auto answer = slow->receive(soon());
  ASSERT_TRUE(answer.ok()) << answer.error().what;
  EXPECT_EQ(answer->kind, Message::Kind::kWelcome);
  slow.reset();  // the end of a rank that came ends the meeting
  EXPECT_THAT(first.wait(), HasSubstr("rank 1 of host " + host_));
}

TEST_F(RendezvousTest, ARankKilledInTheHandshakeIsNamedByAllWhoCame) {
  std::vector<RankProcess> came;
  for (const int rank : {0, 1, 2}) came.push_back(start(rank, 4));
  std::this_thread::sleep_for(milliseconds(500));  // they have come, and wait for rank 3
  const auto killed = steady_clock::now();
  came[2].signal(SIGKILL);
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    EXPECT_THAT(came[rank].wait(),
                AllOf(HasSubstr("rank 2 of host " + host_ + " (process "), HasSubstr("ended")));
  }
  EXPECT_LT(steady_clock::now() - killed, seconds(5));
}

TEST_F(RendezvousTest, AnAddressOfSomethingElseIsAnError) {
  auto listener = io::Listener::listen_tcp({"127.0.0.1", 0}).value();
  RankProcess rank([&] {
    auto options = options_for({"127.0.0.1", listener.port()}, 1, 2);
    return run_rank(options, [](SymmetricHeap&) { return Result<void>(); });
  });
  auto accepted = listener.accept(soon()).value();
  ASSERT_TRUE(accepted.has_value());
  const std::string_view page = "HTTP/1.1 400 Bad Request\r\n\r\n";
  ASSERT_TRUE(accepted->send(std::as_bytes(std::span(page)), soon()).ok());
  EXPECT_THAT(rank.wait(), AllOf(HasSubstr("rank 0 of host 127.0.0.1"), HasSubstr("protocol")));
}

}  // namespace
}  // namespace tandem::comm
