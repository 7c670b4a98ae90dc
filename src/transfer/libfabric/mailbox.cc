#include "transfer/libfabric/mailbox.h"

namespace tandem::transfer {

Result<LibfabricBuffers> LibfabricBuffers::create(const LibfabricEndpoint& endpoint, uint32_t count,
                                                  uint32_t bytes_each, uint64_t access) {
  LibfabricBuffers result;
  result.memory_.resize(size_t{count} * bytes_each);
  result.bytes_each_ = bytes_each;
  if (!endpoint.has(FI_MR_LOCAL)) return result;
  fid_mr* registration = nullptr;
  const int status = fi_mr_reg(endpoint.domain(), result.memory_.data(), result.memory_.size(),
                               access, 0, 0, 0, &registration, nullptr);
  if (status != 0) return libfabric_error("registering the buffers of messages", status);
  result.registration_.reset(registration);
  return result;
}

std::span<std::byte> LibfabricBuffers::piece(uint32_t index) {
  return std::span(memory_).subspan(size_t{index} * bytes_each_, bytes_each_);
}

void* LibfabricBuffers::descriptor() const {
  return registration_ == nullptr ? nullptr : fi_mr_desc(registration_.get());
}

Result<LibfabricMailbox> LibfabricMailbox::open(const LibfabricEndpoint& endpoint, uint32_t count,
                                                uint32_t message_bytes_max) {
  LibfabricMailbox result(endpoint);
  result.buffers_ =
      TANDEM_TRY(LibfabricBuffers::create(endpoint, count, message_bytes_max, FI_RECV));
  result.contexts_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    result.contexts_[i].index = i;
    result.waiting_.push_back(i);
  }
  TANDEM_TRY(result.post_waiting());
  return result;
}

std::span<const std::byte> LibfabricMailbox::message(const LibfabricContext& context,
                                                     size_t bytes) {
  return buffers_.piece(context.index).first(bytes);
}

Result<void> LibfabricMailbox::post_again(const LibfabricContext& context) {
  waiting_.push_back(context.index);
  return post_waiting();
}

Result<void> LibfabricMailbox::post_waiting() {
  while (!waiting_.empty()) {
    const uint32_t index = waiting_.back();
    const std::span<std::byte> buffer = buffers_.piece(index);
    const iovec piece{buffer.data(), buffer.size()};
    void* descriptor = buffers_.descriptor();
    const fi_msg receive{.msg_iov = &piece,
                         .desc = &descriptor,
                         .iov_count = 1,
                         .addr = FI_ADDR_UNSPEC,
                         .context = &contexts_[index].words,
                         .data = 0};
    const ssize_t status = fi_recvmsg(endpoint_->endpoint(), &receive, FI_COMPLETION);
    if (status == -FI_EAGAIN) return {};
    if (status != 0) return libfabric_error("fi_recvmsg", status);
    waiting_.pop_back();
  }
  return {};
}

}  // namespace tandem::transfer
