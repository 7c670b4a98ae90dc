#pragma once

#include <grpcpp/grpcpp.h>

#include "base/result.h"

namespace tandem::rpc {

/// The same failure in gRPC's words and in ours. A peer's status is never trusted further than
/// that: unknown codes are kUnavailable.
grpc::Status status_of(const Error& error);
Error error_of(const grpc::Status& status);

}  // namespace tandem::rpc
