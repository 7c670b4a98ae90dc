#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "io/executor.h"
#include "rpc/grpc_channel.h"
#include "rpc/transport.h"

namespace tandem::rpc {

/// A transport and the port that it listens on. kInvalidArgument for addresses that cannot be
/// listened on, and for certificates that cannot be read.
struct ListeningTransport {
  std::unique_ptr<Transport> transport;
  int port = 0;
};
Result<ListeningTransport> make_grpc_transport(const GrpcChannelOptions& options,
                                               io::Executor& executor);

}  // namespace tandem::rpc
