#include "transfer/libfabric/posts.h"

#include <rdma/fi_rma.h>

#include <algorithm>

namespace tandem::transfer {

Result<LibfabricPosts> LibfabricPosts::create(const LibfabricEndpoint& endpoint, uint32_t posts_max,
                                              uint32_t message_bytes_max) {
  LibfabricPosts result(endpoint);
  result.buffers_ =
      TANDEM_TRY(LibfabricBuffers::create(endpoint, posts_max, message_bytes_max, FI_SEND));
  for (uint32_t i = 0; i < posts_max; ++i) result.append(i);
  return result;
}

void LibfabricPosts::append(uint32_t buffer) {
  const uint32_t index = count();
  for (LibfabricContext& context : posts_.emplace_back().contexts) context.index = index;
  buffer_of_.push_back(buffer);
  free_.push_back(index);
}

void LibfabricPosts::retire(uint32_t index) {
  TANDEM_CHECK(posts_[index].state != State::kFree);
  posts_[index].state = State::kRetired;
  // Messages of such providers are copied when they are handed over: the buffer is free.
  append(buffer_of_[index]);
}

uint32_t LibfabricPosts::take() {
  TANDEM_CHECK(!free_.empty());
  const uint32_t index = free_.back();
  free_.pop_back();
  posts_[index].state = State::kWaiting;
  posts_[index].has_begun = false;
  return index;
}

uint32_t LibfabricPosts::add_write(const RailWrite& write) {
  const uint32_t index = take();
  posts_[index].is_message = false;
  posts_[index].write = write;
  return index;
}

uint32_t LibfabricPosts::add_message(RailPeerId peer, std::span<const std::byte> bytes,
                                     uint64_t token) {
  const uint32_t index = take();
  posts_[index].is_message = true;
  posts_[index].message_bytes = static_cast<uint32_t>(bytes.size());
  posts_[index].write = {.peer = peer, .token = token};
  std::ranges::copy(bytes, buffer(index).begin());
  return index;
}

void LibfabricPosts::remove(uint32_t index) {
  TANDEM_CHECK(posts_[index].state != State::kFree);
  posts_[index].state = State::kFree;
  free_.push_back(index);
}

ssize_t LibfabricPosts::submit(uint32_t index, fi_addr_t peer, const LibfabricRegions& regions) {
  const ssize_t status =
      posts_[index].is_message ? submit_message(index, peer) : submit_write(index, peer, regions);
  if (status == 0) posts_[index].state = State::kUnderWay;
  return status;
}

ssize_t LibfabricPosts::submit_message(uint32_t index, fi_addr_t peer) {
  Post& post = posts_[index];
  const iovec piece{buffer(index).data(), post.message_bytes};
  void* descriptor = buffers_.descriptor();
  const fi_msg message{.msg_iov = &piece,
                       .desc = &descriptor,
                       .iov_count = 1,
                       .addr = peer,
                       .context = &post.contexts[0].words,
                       .data = 0};
  return fi_sendmsg(endpoint_->endpoint(), &message, FI_COMPLETION);
}

ssize_t LibfabricPosts::submit_write(uint32_t index, fi_addr_t peer,
                                     const LibfabricRegions& regions) {
  Post& post = posts_[index];
  const RailWrite& write = post.write;
  const auto submit_part = [&](uint64_t bytes, LibfabricContext& context, uint64_t flags) {
    LibfabricRegions::Source source{buffer(index).data(), buffers_.descriptor()};
    if (bytes > 0) source = regions.source(write.source);
    const iovec from{source.data + (bytes > 0 ? write.source_offset : 0), bytes};
    const fi_rma_iov to{write.target.base + write.target_offset, bytes, write.target.key};
    const fi_msg_rma operation{.msg_iov = &from,
                               .desc = &source.descriptor,
                               .iov_count = 1,
                               .addr = peer,
                               .rma_iov = &to,
                               .rma_iov_count = 1,
                               .context = &context.words,
                               .data = write.immediate.value_or(0)};
    const ssize_t status = fi_writemsg(endpoint_->endpoint(), &operation, flags);
    if (status == 0) post.has_begun = true;
    return status;
  };
  uint64_t flags = FI_COMPLETION;
  if (write.bytes > 0 || endpoint_->confirms_empty_writes()) flags |= FI_DELIVERY_COMPLETE;
  if (write.immediate.has_value()) flags |= FI_REMOTE_CQ_DATA;
  if (!write.immediate.has_value() || write.bytes == 0 || !endpoint_->splits_immediates()) {
    return submit_part(write.bytes, post.contexts[0], flags);
  }
  // One connection keeps the order of its writes, so the second is delivered after the first. When
  // only the first is taken, both are submitted again: by then it may be another connection.
  const ssize_t status = submit_part(write.bytes, post.contexts[0], 0);
  return status == 0 ? submit_part(0, post.contexts[1], flags) : status;
}

}  // namespace tandem::transfer
