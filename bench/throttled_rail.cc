#include "bench/throttled_rail.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem::bench {

using transfer::Post;
using transfer::RailOutcome;

Result<std::unique_ptr<ThrottledRail>> ThrottledRail::create(std::unique_ptr<transfer::Rail> within,
                                                             Options options) {
  io::FileDescriptor timer(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  io::FileDescriptor both(epoll_create1(EPOLL_CLOEXEC));
  bool is_whole = timer.get() >= 0 && both.get() >= 0;
  for (const int descriptor : {timer.get(), within->wait_descriptor()}) {
    if (!is_whole || descriptor < 0) continue;
    epoll_event event{.events = EPOLLIN, .data = {}};
    is_whole = epoll_ctl(both.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  }
  if (!is_whole) {
    return make_error(Code::kResourceExhausted,
                      "no descriptors for a throttled rail; raise the limit of open files");
  }
  return std::unique_ptr<ThrottledRail>(
      new ThrottledRail(std::move(within), std::move(options), std::move(timer), std::move(both)));
}

ThrottledRail::ThrottledRail(std::unique_ptr<transfer::Rail> within, Options options,
                             io::FileDescriptor timer, io::FileDescriptor both)
    : within_(std::move(within)),
      options_(std::move(options)),
      timer_(std::move(timer)),
      both_(std::move(both)) {}

void ThrottledRail::close_peer(transfer::RailPeerId peer) {
  const auto is_to_peer = [&](const OnWire& entry) { return entry.write.peer == peer; };
  for (const OnWire& entry : wire_) {
    if (is_to_peer(entry)) unsent_.push_back(entry.write.token);
  }
  std::erase_if(wire_, is_to_peer);
  within_->close_peer(peer);
}

Post ThrottledRail::post_write(const transfer::RailWrite& write) {
  const double bytes_per_second = options_.bytes_per_second();
  if (bytes_per_second <= 0 && wire_.empty()) {
    const Post post = within_->post_write(write);
    if (post == Post::kAccepted) options_.on_sent(write.bytes);
    return post;
  }
  if (wire_.size() >= limits().posts_max) return Post::kFull;
  free_at_ = std::max(free_at_, options_.clock());
  if (bytes_per_second > 0) {
    const std::chrono::duration<double> on_wire(static_cast<double>(write.bytes) /
                                                bytes_per_second);
    free_at_ += std::chrono::duration_cast<transfer::Duration>(on_wire);
  }
  wire_.push_back({write, free_at_});
  return Post::kAccepted;
}

void ThrottledRail::post_arrived() {
  const transfer::TimePoint now = options_.clock();
  while (!wire_.empty() && wire_.front().arrives <= now) {
    const transfer::RailWrite& write = wire_.front().write;
    if (within_->post_write(write) == Post::kFull) return;
    options_.on_sent(write.bytes);
    wire_.pop_front();
  }
}

uint32_t ThrottledRail::poll(transfer::RailEvents& events, uint32_t events_max) {
  uint32_t count = 0;
  for (; count < events_max && !unsent_.empty(); ++count) {
    const Error error = make_error(Code::kCancelled, name() + ": its peer was closed");
    events.post_ended(unsent_.front(), RailOutcome::kNotSent, &error);
    unsent_.pop_front();
  }
  post_arrived();
  // Behind the ends above, so that a closed peer's come before its own.
  return unsent_.empty() ? count + within_->poll(events, events_max - count) : count;
}

int ThrottledRail::wait_descriptor() const {
  return within_->wait_descriptor() < 0 ? -1 : both_.get();
}

bool ThrottledRail::may_sleep() {
  if (!unsent_.empty()) return false;
  itimerspec alarm{};
  if (!wire_.empty()) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(wire_.front().arrives -
                                                                           options_.clock());
    if (left.count() <= 0) return false;
    alarm.it_value = {.tv_sec = left.count() / 1'000'000'000,
                      .tv_nsec = left.count() % 1'000'000'000};
  }
  timerfd_settime(timer_.get(), 0, &alarm, nullptr);  // also takes back what was due
  return within_->may_sleep();
}

}  // namespace tandem::bench
