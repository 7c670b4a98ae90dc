#include "comm/watch.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <array>
#include <utility>

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kBeat{500};
constexpr milliseconds kSilence{3000};
constexpr milliseconds kLinger{5000};
/// A peer that takes nothing for this long is stopped; it will see the end of the connection.
constexpr milliseconds kSendTimeout{200};

}  // namespace

Result<std::unique_ptr<Watch>> Watch::start(int rank,
                                            std::vector<std::optional<Connection>> connections,
                                            GroupHealth& health) {
  auto [wake, woken] = TANDEM_TRY(io::Socket::make_pair());
  return std::unique_ptr<Watch>(
      new Watch(rank, std::move(connections), health, std::move(wake), std::move(woken)));
}

Watch::Watch(int rank, std::vector<std::optional<Connection>> connections, GroupHealth& health,
             io::Socket wake, io::Socket woken)
    : rank_(rank),
      connections_(std::move(connections)),
      heard_(connections_.size(), steady_clock::now()),
      health_(health),
      wake_(std::move(wake)),
      woken_(std::move(woken)),
      thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), "comm-watch");
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    if (!farewell_) {
      farewell_ = Message{.kind = Message::Kind::kDeparted, .rank = static_cast<uint32_t>(rank_)};
    }
  }
  leaving_.store(true, std::memory_order_release);
  (void)wake_.send(std::array{std::byte{1}}, steady_clock::now() + kSendTimeout).ok();
  thread_.join();
}

void Watch::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    farewell_ = Message{
        .kind = Message::Kind::kDied, .rank = static_cast<uint32_t>(rank_), .parts = {reason}};
  }
  (void)wake_.send(std::array{std::byte{1}}, steady_clock::now() + kSendTimeout).ok();
}

void Watch::run() {
  auto beat = steady_clock::now();
  while (!is_finished()) {
    wait_for_news();
    for (int source = 0; source < static_cast<int>(connections_.size()); ++source) read(source);
    say_farewell();
    if (steady_clock::now() < beat) continue;
    beat = steady_clock::now() + kBeat;
    tell({.kind = Message::Kind::kAlive, .rank = static_cast<uint32_t>(rank_)}, rank_);
    report_silence();
  }
}

void Watch::wait_for_news() {
  std::vector<int> descriptors = {woken_.descriptor()};
  for (const auto& connection : connections_) {
    if (connection) descriptors.push_back(connection->descriptor());
  }
  io::wait_readable(descriptors, kBeat);
  std::array<std::byte, 16> ignored;
  (void)woken_.receive_some(ignored).ok();
}

void Watch::read(int source) {
  auto& connection = connections_[static_cast<size_t>(source)];
  while (connection) {
    const auto message = connection->take();
    if (!message.ok()) {
      connection.reset();
      if (health_.has_departed(source)) return;
      const std::string reason =
          "its connection ended without a farewell (" + message.error().what + ")";
      health_.died(source, reason);
      tell({.kind = Message::Kind::kDied, .rank = static_cast<uint32_t>(source), .parts = {reason}},
           source);
      return;
    }
    if (!message->has_value()) return;
    heard_[static_cast<size_t>(source)] = steady_clock::now();
    handle(source, **message);
  }
}

void Watch::handle(int source, const Message& message) {
  // Rank 0 speaks for others, everyone else for itself.
  const bool is_known = message.rank < connections_.size();
  if (!is_known || (source != 0 && message.rank != static_cast<uint32_t>(source))) return;
  const auto about = static_cast<int>(message.rank);
  if (message.kind == Message::Kind::kDeparted) {
    health_.departed(about);
  } else if ((message.kind == Message::Kind::kDied || message.kind == Message::Kind::kRefused) &&
             message.parts.size() == 1) {
    // A refusal comes here when the meeting failed after this rank had all it needs.
    health_.died(about, message.parts[0]);
    // Its end is explained, whatever its connection does next.
    health_.departed(about);
  } else {
    return;
  }
  if (rank_ == 0) tell(message, source);
}

void Watch::tell(const Message& message, int except) {
  for (size_t peer = 0; peer < connections_.size(); ++peer) {
    if (!connections_[peer] || static_cast<int>(peer) == except) continue;
    // A failure needs no answer here: the end of the connection is read in the next round.
    (void)connections_[peer]->send(message, steady_clock::now() + kSendTimeout).ok();
  }
}

void Watch::say_farewell() {
  if (farewell_said_) return;
  const std::lock_guard lock(mutex_);
  if (!farewell_) return;
  tell(*farewell_, rank_);
  farewell_said_ = true;
  linger_until_ = steady_clock::now() + kLinger;
}

void Watch::report_silence() {
  for (size_t peer = 0; peer < connections_.size(); ++peer) {
    const auto silent = steady_clock::now() - heard_[peer];
    if (!connections_[peer] || silent < kSilence) continue;
    spdlog::warn("comm_rank_silent rank={} silent=\"{}\" silent_ms={}", health_.number(rank_),
                 health_.name(static_cast<int>(peer)),
                 std::chrono::duration_cast<milliseconds>(silent).count());
  }
}

bool Watch::is_finished() const {
  if (!leaving_.load(std::memory_order_acquire) || !farewell_said_) return false;
  if (rank_ != 0 || health_.has_failed() || steady_clock::now() >= linger_until_) return true;
  for (const auto& connection : connections_) {
    if (connection) return false;
  }
  return true;
}

}  // namespace tandem::comm
