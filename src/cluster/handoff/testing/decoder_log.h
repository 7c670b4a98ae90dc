#pragma once

#include <string>
#include <utility>

#include "cluster/handoff/decoder_ports.h"

namespace tandem::cluster::handoff::testing {

/// Writes down what it is told, and counts what it is told to.
class DecoderLog final : public DecoderPorts {
 public:
  std::string take() { return std::exchange(text_, ""); }

  void send(const Message& message) override {
    static constexpr const char* kNames[] = {"Start",   "Cancel",    "Accepted", "Failed",
                                             "Drained", "Heartbeat", "Ask"};
    if (std::holds_alternative<Heartbeat>(message.body)) {
      ++heartbeats;
      return;
    }
    if (const auto* start = std::get_if<Start>(&message.body)) last_start = *start;
    add(std::string(kNames[message.body.index()]) + " " + std::to_string(message.key.epoch));
  }
  void arm(Immediate, uint32_t rank, uint32_t writes) override {
    add("arm " + std::to_string(rank) + ":" + std::to_string(writes));
  }
  void drop(Immediate, uint32_t rank) override { add("drop " + std::to_string(rank)); }
  void verify(Key) override { add("verify"); }
  void admit(RequestId, Key) override { add("admit"); }
  void fail(RequestId, Error error, Policy next) override {
    last_error = std::move(error);
    add(next == Policy::kFail ? "fail" : next == Policy::kRetry ? "retry" : "recompute");
  }
  void release(Key key) override { add("release " + std::to_string(key.epoch)); }
  void fence(LinkId) override { add("fence"); }

  Start last_start;
  Error last_error;
  int heartbeats = 0;

 private:
  void add(const std::string& what) { text_ += (text_.empty() ? "" : ", ") + what; }
  std::string text_;
};

}  // namespace tandem::cluster::handoff::testing
