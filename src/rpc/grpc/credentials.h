#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "rpc/grpc_channel.h"

namespace tandem::rpc {

/// The name under which the secret travels; "-bin" lets it be any bytes.
inline constexpr char kSecretKey[] = "tandem-secret-bin";

/// kInvalidArgument when there are none, or halves of them.
Result<void> check_credentials(const Credentials& credentials);
std::shared_ptr<grpc::ChannelCredentials> dialling_credentials(const Credentials& credentials);
std::shared_ptr<grpc::ServerCredentials> listening_credentials(const Credentials& credentials);

/// Whether two secrets are equal, in a time that depends on their lengths alone.
bool is_same_secret(std::string_view a, std::string_view b);
/// Whether the caller has shown the secret that is asked for.
bool shows_secret(const grpc::ServerContextBase& context, const std::string& secret);

}  // namespace tandem::rpc
