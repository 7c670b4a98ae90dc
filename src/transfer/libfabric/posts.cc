#include "transfer/libfabric/posts.h"

#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>

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
  posts_[index].next_of_batch = kAlone;
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

ssize_t LibfabricPosts::submit_part(uint32_t index, const Part& part, fi_addr_t peer,
                                    const LibfabricRegions& regions) {
  Post& post = posts_[index];
  const RailWrite& write = post.write;
  LibfabricRegions::Source source{buffer(index).data(), buffers_.descriptor()};
  if (part.bytes > 0) source = regions.source(write.source);
  const iovec from{source.data + (part.bytes > 0 ? write.source_offset : 0), part.bytes};
  const fi_rma_iov to{write.target.base + write.target_offset, part.bytes, write.target.key};
  const fi_msg_rma operation{.msg_iov = &from,
                             .desc = &source.descriptor,
                             .iov_count = 1,
                             .addr = peer,
                             .rma_iov = &to,
                             .rma_iov_count = 1,
                             .context = &part.context->words,
                             .data = part.data};
  const ssize_t status = fi_writemsg(endpoint_->endpoint(), &operation, part.flags);
  if (status == 0) post.has_begun = true;
  return status;
}

ssize_t LibfabricPosts::submit_write(uint32_t index, fi_addr_t peer,
                                     const LibfabricRegions& regions) {
  Post& post = posts_[index];
  Part part{.bytes = post.write.bytes,
            .data = post.write.immediate.value_or(0),
            .flags = FI_COMPLETION,
            .context = &post.contexts[0]};
  if (part.bytes > 0 || endpoint_->confirms_empty_writes()) part.flags |= FI_DELIVERY_COMPLETE;
  if (post.write.immediate.has_value()) part.flags |= FI_REMOTE_CQ_DATA;
  return submit_part(index, part, peer, regions);
}

LibfabricPosts::Arrivals LibfabricPosts::arrivals_of(uint64_t data) {
  return {static_cast<uint32_t>(data), static_cast<uint32_t>(data >> 32) + 1};
}

ssize_t LibfabricPosts::submit_batch(std::span<const uint32_t> indices, fi_addr_t peer,
                                     const LibfabricRegions& regions) {
  struct Step {
    uint32_t index = 0;
    Part part;
  };
  std::array<Step, 2 * kBatchMax> steps;
  size_t count = 0;
  for (const uint32_t index : indices) {
    Post& post = posts_[index];
    if (post.write.bytes == 0 && post.write.immediate.has_value()) continue;
    steps[count++] = {index, {.bytes = post.write.bytes, .context = &post.contexts[0]}};
  }
  Step* immediate = nullptr;  // of the run
  for (const uint32_t index : indices) {
    Post& post = posts_[index];
    if (!post.write.immediate.has_value()) continue;
    if (immediate != nullptr &&
        static_cast<uint32_t>(immediate->part.data) == *post.write.immediate) {
      immediate->part.data += uint64_t{1} << 32;
      continue;
    }
    immediate = &steps[count++];
    *immediate = {
        index,
        {.data = *post.write.immediate, .flags = FI_REMOTE_CQ_DATA, .context = &post.contexts[1]}};
  }
  // The context of the last names the first post: its end is that of all.
  Step& last = steps[count - 1];
  last.part.flags |= FI_COMPLETION | FI_DELIVERY_COMPLETE;
  last.part.context = &posts_[indices.front()].contexts[1];
  for (const Step& step : std::span(steps).first(count)) {
    const ssize_t status = submit_part(step.index, step.part, peer, regions);
    if (status != 0) return status;
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    Post& post = posts_[indices[i]];
    post.state = State::kUnderWay;
    post.next_of_batch = i + 1 < indices.size() ? indices[i + 1] : kAlone;
  }
  return 0;
}

}  // namespace tandem::transfer
