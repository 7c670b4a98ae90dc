// Goal: the channel over gRPC keeps the contract of every channel; strangers stay outside; a peer
// that falls silent is given up in bounded time.
// Method: the shared contract suite over the loopback interface; wrong and missing credentials of
// each kind; a relay between two channels that cuts or freezes what passes. Deadlines of waits are
// far longer than what they wait for, as the machine may be busy.

#include "rpc/grpc_channel.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "io/event_loop.h"
#include "io/scratch_folder.h"
#include "rpc/grpc/credentials.h"
#include "rpc/grpc/exchange.grpc.pb.h"
#include "rpc/grpc/testing/certificates.h"
#include "rpc/grpc/testing/relay.h"
#include "rpc/testing/channel_contract.h"

namespace tandem::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Credentials kSecret{.secret = "a secret of the test, 32 bytes.."};

struct GrpcTestNetwork {
  int open_port(Recorder& process, const ChannelOptions& options, const Credentials& credentials) {
    auto opened = open_grpc_channel({.channel = options,
                                     .credentials = credentials,
                                     .listen_address = "127.0.0.1:0",
                                     .tls_name = "tandem"},
                                    loop, process);
    EXPECT_TRUE(opened.ok()) << opened.error().what;
    process.channel = std::move(opened->channel);
    return opened->port;
  }
  std::string open(Recorder& process, const ChannelOptions& options,
                   const Credentials& credentials = kSecret) {
    return "127.0.0.1:" + std::to_string(open_port(process, options, credentials));
  }
  bool run_until(const std::function<bool()>& done) {
    return loop.run_until(done, loop.now() + seconds(20));
  }
  void run_for(milliseconds time) {
    loop.run_until([] { return false; }, loop.now() + time);
  }

  io::EventLoop loop;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Grpc, ChannelContract, GrpcTestNetwork);

class GrpcChannelTest : public ChannelContract<GrpcTestNetwork> {
 protected:
  /// Whether `a` with one kind of credentials comes to `b` with another. When not, what `a` hears.
  std::string join(const Credentials& dialling, const Credentials& listening) {
    network.open(a, options_of(a), dialling);
    const std::string address = network.open(b, options_of(b), listening);
    EXPECT_TRUE(a.channel->connect("b", address).ok());
    EXPECT_TRUE(until(
        [&] { return (a.is_connected("b") && b.is_connected("a")) || a.count("failed b") >= 2; }));
    return a.is_connected("b") ? "joined" : a.failures[0].what;
  }
};

TEST_F(GrpcChannelTest, AWrongSecretStaysOutside) {
  const std::string told = join({.secret = "a secret of the test, 32 bytes.!"}, kSecret);
  EXPECT_NE(told.find("secret is wrong or missing"), std::string::npos) << told;
  EXPECT_EQ(b.lines.size(), 0u);
  EXPECT_EQ(b.channel->status().connections, 0u);
}

TEST_F(GrpcChannelTest, ABeginningOfTheSecretStaysOutside) {
  EXPECT_NE(join({.secret = kSecret.secret.substr(0, 16)}, kSecret), "joined");
}

TEST_F(GrpcChannelTest, TlsWithTheSameAuthorityJoins) {
  TestAuthority authority;
  EXPECT_EQ(join(authority.issue(), authority.issue()), "joined");
}

TEST_F(GrpcChannelTest, ACertificateOfAnotherAuthorityStaysOutside) {
  TestAuthority ours, other;
  Credentials stranger = other.issue();
  stranger.authority = ours.issue().authority;  // it trusts us; we do not trust it
  EXPECT_NE(join(stranger, ours.issue()), "joined");
  EXPECT_EQ(b.lines.size(), 0u);
}

TEST_F(GrpcChannelTest, AListenerOfAnotherAuthorityIsNotTrusted) {
  TestAuthority ours, other;
  Credentials stranger = other.issue();
  stranger.authority = ours.issue().authority;
  EXPECT_NE(join(ours.issue(), stranger), "joined");
}

TEST_F(GrpcChannelTest, NoCertificateStaysOutside) {
  TestAuthority authority;
  EXPECT_NE(join(kSecret, authority.issue()), "joined");
  EXPECT_EQ(b.lines.size(), 0u);
}

TEST_F(GrpcChannelTest, TlsWithoutAnOwnCertificateStaysOutside) {
  TestAuthority authority;
  const Credentials ours = authority.issue();
  const std::string address = network.open(b, options_of(b), ours);
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("tandem");
  const auto join = [&](const grpc::SslCredentialsOptions& credentials) {
    const auto stub = wire::Exchange::NewStub(
        grpc::CreateCustomChannel(address, grpc::SslCredentials(credentials), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(1));
    const auto stream = stub->Connect(&context);
    // Whoever is let in waits for b's hello until the deadline, as b's loop does not run here.
    wire::Frame frame;
    EXPECT_FALSE(stream->Read(&frame));
    return stream->Finish().error_code();
  };
  EXPECT_EQ(join({.pem_root_certs = ours.authority}), grpc::StatusCode::UNAVAILABLE);
  // The same way in works with a certificate.
  EXPECT_EQ(join({ours.authority, ours.key, ours.certificate}),
            grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(GrpcChannelTest, WithBothKindsTheSecretIsStillAskedFor) {
  TestAuthority authority;
  Credentials listening = authority.issue();
  listening.secret = kSecret.secret;
  EXPECT_NE(join(authority.issue(), listening), "joined");
}

TEST_F(GrpcChannelTest, WithBothKindsBothTogetherJoin) {
  TestAuthority authority;
  Credentials dialling = authority.issue(), listening = authority.issue();
  dialling.secret = listening.secret = kSecret.secret;
  EXPECT_EQ(join(dialling, listening), "joined");
}

TEST_F(GrpcChannelTest, APeerThatFallsSilentIsGivenUpByBothSides) {
  network.open(a, options_of(a));
  Relay relay(network.open_port(b, options_of(b, 7), kSecret));
  ASSERT_TRUE(a.channel->connect("b", relay.address()).ok());
  ASSERT_TRUE(until([&] { return a.is_connected("b") && b.is_connected("a"); }));
  // Silence alone is no death: the probes are answered for far longer than silence_max.
  network.run_for(milliseconds(1'500));
  EXPECT_EQ(a.count("closed b"), 0);
  EXPECT_EQ(b.count("closed a"), 0);
  relay.freeze();
  const io::Time frozen = network.loop.now();
  ASSERT_TRUE(until([&] { return a.count("closed b") == 1 && b.count("closed a") == 1; }));
  EXPECT_EQ(a.reasons.back().code, Code::kUnavailable);
  // silence_probe + silence_max = 1 s, with room for a busy machine.
  EXPECT_LE(network.loop.now() - frozen, seconds(6));
  relay.cut();
  relay.thaw();
  ASSERT_TRUE(until([&] { return a.is_connected("b") && b.is_connected("a"); }));
}

TEST_F(GrpcChannelTest, ALostConnectionIsDialledAgain) {
  network.open(a, options_of(a));
  Relay relay(network.open_port(b, options_of(b, 7), kSecret));
  ASSERT_TRUE(a.channel->connect("b", relay.address()).ok());
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(until([&] { return a.is_connected("b") && b.is_connected("a"); })) << round;
    ASSERT_TRUE(a.send("b", std::to_string(round)).ok());
    ASSERT_TRUE(until([&] { return b.messages.size() == static_cast<size_t>(round); }));
    relay.cut();
    ASSERT_TRUE(
        until([&] { return a.count("closed b") == round && b.count("closed a") == round; }));
  }
  EXPECT_EQ(b.messages, (std::vector<std::string>{"1", "2", "3"}));
}

/// Sends to a process whose loop does not run, until nothing more is taken or too much was; then
/// lets it run. Returns how many messages were taken.
size_t send_to_a_stopped_reader(ChannelOptions sender, ChannelOptions reader,
                                const std::string& message, size_t taken_max) {
  GrpcTestNetwork network, slow;
  Recorder a("a"), b("b");
  const auto run_both = [&](const std::function<bool()>& done) {
    for (int i = 0; i < 10'000 && !done(); ++i) {
      slow.run_for(milliseconds(1));
      network.run_for(milliseconds(1));
    }
    return done();
  };
  network.open(a, sender);
  EXPECT_TRUE(a.channel->connect("b", slow.open(b, reader)).ok());
  EXPECT_TRUE(run_both([&] { return a.is_connected("b") && b.is_connected("a"); }));
  size_t taken = 0;
  for (int idle = 0; taken < taken_max && idle < 100;) {
    if (a.send("b", message).ok()) {
      taken += 1;
      idle = 0;
    } else {
      idle += 1;
      network.run_for(milliseconds(1));
    }
  }
  EXPECT_TRUE(run_both([&] { return b.messages.size() == taken; }));
  return taken;
}

TEST_F(GrpcChannelTest, AReaderThatStopsHoldsTheSenderBack) {
  // What the two systems and gRPC's windows hold besides the queues: some MiB; not 200.
  ChannelOptions options = options_of(a);
  options.limits.queue_messages_max = 1'000'000;
  const std::string large(100'000, 'x');
  EXPECT_LT(send_to_a_stopped_reader(options, options_of(b), large, 2'000), 2'000u);
  // The same in smaller ones, of which the number is limited.
  options = options_of(a);
  options.limits.queue_bytes_max = size_t{1} << 30;
  const std::string small(4'000, 'x');
  EXPECT_LT(send_to_a_stopped_reader(options, options_of(b), small, 50'000), 50'000u);
}

TEST_F(GrpcChannelTest, ManyConnectionsEndWithTheirChannelInAnyOrder) {
  // What is left running or freed twice shows under AddressSanitizer.
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Recorder>> processes;
    const std::string address = network.open(b, options_of(b));
    for (int i = 0; i < 4; ++i) {
      processes.push_back(std::make_unique<Recorder>("peer" + std::to_string(i)));
      network.open(*processes.back(), options_of(*processes.back()));
      ASSERT_TRUE(processes.back()->channel->connect("b", address).ok());
    }
    const size_t connected = static_cast<size_t>(round % 5);
    ASSERT_TRUE(until([&] { return b.connections.size() >= connected; }));
    for (auto& process : processes) {
      if (process->is_connected("b")) (void)process->send("b", std::string(50'000, 'x'));
    }
    if (round % 2 == 0) b.channel.reset();
    processes.clear();
    b.channel.reset();
    b.connections.clear();
  }
}

TEST_F(GrpcChannelTest, WhatCannotWorkIsRefusedAtOnce) {
  const auto open = [&](const Credentials& credentials, const std::string& address) {
    return open_grpc_channel(
        {.channel = options_of(a), .credentials = credentials, .listen_address = address},
        network.loop, a);
  };
  const auto none = open({}, "127.0.0.1:0");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().what.find("give a secret"), std::string::npos);
  EXPECT_FALSE(open({.secret = "short"}, "127.0.0.1:0").ok());
  EXPECT_FALSE(open({.authority = "x"}, "127.0.0.1:0").ok());
  EXPECT_FALSE(open({.authority = "x", .certificate = "y", .key = "z"}, "127.0.0.1:0").ok());
  const int port = network.open_port(b, options_of(b), kSecret);
  const auto taken = open(kSecret, "127.0.0.1:" + std::to_string(port));
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, Code::kInvalidArgument);
  EXPECT_NE(taken.error().what.find(std::to_string(port)), std::string::npos);
}

TEST(Credentials, AreReadFromFiles) {
  io::ScratchFolder folder;
  CredentialFiles files;
  files.secret = folder.write("secret", "0123456789abcdef0123\n\n");
  const auto read = read_credentials(files);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->secret, "0123456789abcdef0123");
  files.secret = folder.write("empty", "\n");
  EXPECT_FALSE(read_credentials(files).ok());
  files.secret = folder.path() / "absent";
  EXPECT_FALSE(read_credentials(files).ok());
}

TEST(Credentials, SecretsDifferInAnyByte) {
  const std::string secret = "0123456789abcdef";
  EXPECT_TRUE(is_same_secret(secret, secret));
  for (size_t i = 0; i < secret.size(); ++i) {
    std::string other = secret;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(is_same_secret(secret, other)) << i;
  }
  EXPECT_FALSE(is_same_secret(secret, secret.substr(0, 15)));
  EXPECT_FALSE(is_same_secret("", secret));
}

}  // namespace
}  // namespace tandem::rpc
