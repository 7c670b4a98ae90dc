#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/socket.h"

namespace tandem::rpc {

/// A network between a test's processes: passes bytes on to another address, until told to freeze
/// (nothing passes, nothing is closed, as behind a cable that is cut) or to cut (all connections
/// are closed).
class Relay {
 public:
  explicit Relay(int target_port)
      : target_port_(target_port), listener_(*io::Listener::listen_tcp({"127.0.0.1", 0})) {
    thread_ = std::jthread([this](std::stop_token stop) { work(stop); });
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(listener_.port()); }
  void freeze() { frozen_ = true; }
  void thaw() { frozen_ = false; }
  void cut() {
    cut_ = true;
    while (cut_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  using Pair = std::pair<io::Socket, io::Socket>;

  void work(std::stop_token stop) {
    std::list<Pair> pairs;
    while (!stop.stop_requested()) {
      if (cut_) {
        pairs.clear();
        cut_ = false;
      }
      if (frozen_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      std::vector<int> descriptors{listener_.descriptor()};
      for (const auto& [a, b] : pairs) {
        descriptors.push_back(a.descriptor());
        descriptors.push_back(b.descriptor());
      }
      io::wait_readable(descriptors, std::chrono::milliseconds(5));
      accept(pairs);
      pairs.remove_if([](Pair& pair) {
        return !pass(pair.first, pair.second) || !pass(pair.second, pair.first);
      });
    }
  }

  void accept(std::list<Pair>& pairs) {
    auto guest = listener_.accept(std::chrono::steady_clock::now());
    if (!guest.ok() || !*guest) return;
    auto target = io::Socket::connect_tcp(
        {"127.0.0.1", target_port_}, std::chrono::steady_clock::now() + std::chrono::seconds(1));
    if (target.ok()) pairs.emplace_back(std::move(**guest), std::move(*target));
  }

  /// False when one side has ended.
  static bool pass(io::Socket& from, io::Socket& to) {
    std::array<std::byte, 65536> bytes;
    const auto count = from.receive_some(bytes);
    if (!count.ok()) return false;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    return *count == 0 || to.send(std::span(bytes).first(*count), deadline).ok();
  }

  const int target_port_;
  io::Listener listener_;
  std::atomic<bool> frozen_ = false;
  std::atomic<bool> cut_ = false;
  std::jthread thread_;
};

}  // namespace tandem::rpc
