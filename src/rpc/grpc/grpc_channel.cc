#include "rpc/grpc_channel.h"

#include "rpc/channel_core.h"
#include "rpc/grpc/credentials.h"
#include "rpc/grpc/grpc_transport.h"

namespace tandem::rpc {

Result<GrpcChannel> open_grpc_channel(const GrpcChannelOptions& options, io::Executor& executor,
                                      ChannelEvents& events) {
  // gRPC counts the bytes of a message in an int.
  constexpr size_t kMessageBytesMax = size_t{1} << 30;
  if (options.channel.limits.message_bytes_max > kMessageBytesMax) {
    return make_error(Code::kInvalidArgument, "message_bytes_max is above 1 GiB");
  }
  TANDEM_TRY(check_credentials(options.credentials));
  ListeningTransport listening = TANDEM_TRY(make_grpc_transport(options, executor));
  GrpcChannel result;
  result.port = listening.port;
  result.channel = TANDEM_TRY(
      ChannelCore::create(options.channel, executor, events, std::move(listening.transport)));
  return result;
}

}  // namespace tandem::rpc
