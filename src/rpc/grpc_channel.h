#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "io/executor.h"
#include "rpc/channel.h"

namespace tandem::rpc {

/// What proves that a process belongs to the cluster. At least one of the two kinds is needed, and
/// all processes need the same kinds. It proves no name: members trust each other.
///
/// The secret alone travels readable and is shown to whoever answers at a dialled address: for one
/// host or a network that is trusted. Certificates protect both ways.
struct Credentials {
  std::string secret;  ///< at least 16 bytes, compared in constant time; empty: none
  // TLS with certificates on both sides, in PEM; all three or none.
  std::string authority;    ///< who has signed the peers' certificates
  std::string certificate;  ///< of this process
  std::string key;
};

/// Paths; empty ones are not read.
struct CredentialFiles {
  std::filesystem::path secret;  ///< white space at its end does not count
  std::filesystem::path authority;
  std::filesystem::path certificate;
  std::filesystem::path key;
};
Result<Credentials> read_credentials(const CredentialFiles& files);

struct GrpcChannelOptions {
  ChannelOptions channel;
  Credentials credentials;
  std::string listen_address;  ///< "host:port", port 0 for any; empty: only dials
  std::string tls_name;        ///< that certificates bear; empty: the host part of the address
};

struct GrpcChannel {
  std::unique_ptr<Channel> channel;
  int port = 0;  ///< that it listens on
};

/// A channel over gRPC. Its queues are filled and emptied by threads of gRPC; all events come on
/// the executor. Destroying it waits until those threads are done with it. kUnimplemented in
/// builds without gRPC (ThreadSanitizer, fuzzers).
Result<GrpcChannel> open_grpc_channel(const GrpcChannelOptions& options, io::Executor& executor,
                                      ChannelEvents& events);

}  // namespace tandem::rpc
