#include "rpc/grpc/status.h"

#include <utility>

namespace tandem::rpc {
namespace {

constexpr std::pair<Code, grpc::StatusCode> kCodes[] = {
    {Code::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
    {Code::kNotFound, grpc::StatusCode::NOT_FOUND},
    {Code::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
    {Code::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
    {Code::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
    {Code::kCancelled, grpc::StatusCode::CANCELLED},
    {Code::kUnavailable, grpc::StatusCode::UNAVAILABLE},
    {Code::kDataLoss, grpc::StatusCode::DATA_LOSS},
    {Code::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
    {Code::kInternal, grpc::StatusCode::INTERNAL},
};

}  // namespace

grpc::Status status_of(const Error& error) {
  for (const auto& [ours, theirs] : kCodes) {
    if (ours == error.code) return grpc::Status(theirs, error.what);
  }
  return grpc::Status(grpc::StatusCode::INTERNAL, error.what);
}

Error error_of(const grpc::Status& status) {
  if (status.ok()) return make_error(Code::kUnavailable, "the peer ended the call");
  for (const auto& [ours, theirs] : kCodes) {
    if (theirs == status.error_code()) return make_error(ours, status.error_message());
  }
  // UNAUTHENTICATED among them: our credentials have to change before a retry makes sense.
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
      status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
    return make_error(Code::kFailedPrecondition, status.error_message());
  }
  return make_error(Code::kUnavailable, status.error_message());
}

}  // namespace tandem::rpc
