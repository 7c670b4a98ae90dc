#pragma once

#include <memory>
#include <string>
#include <utility>

#include "io/post_box.h"
#include "rpc/channel.h"
#include "rpc/membership.h"
#include "rpc/virtual_channel.h"

namespace tandem::sim {

/// A process's channel whose events and answers come through its executor, so that a process that
/// is stopped hears nothing before it continues.
class GatedChannel final : public rpc::Channel, private rpc::ChannelEvents {
 public:
  GatedChannel(rpc::VirtualNetwork& network, const rpc::ChannelOptions& options,
               const std::string& address, rpc::ChannelEvents& events, io::Executor& gate)
      : events_(events), box_(gate) {
    channel_ = std::move(network.open(options, address, *this).value());
  }

  Result<void> connect(const std::string& name, const std::string& address) override {
    return channel_->connect(name, address);
  }
  void disconnect(const std::string& name) override { channel_->disconnect(name); }
  Result<void> send(rpc::ConnectionId connection, std::string message) override {
    return channel_->send(connection, std::move(message));
  }
  Result<rpc::CallId> call(rpc::ConnectionId connection, std::string request,
                           std::chrono::milliseconds time_max, Answer answer) override {
    return channel_->call(connection, std::move(request), time_max,
                          [this, answer = std::move(answer)](Result<std::string> told) {
                            box_.post([answer, told = std::move(told)] { answer(told); });
                          });
  }
  void cancel(rpc::ConnectionId connection, rpc::CallId call) override {
    channel_->cancel(connection, call);
  }
  void reply(rpc::ConnectionId connection, rpc::CallId call, Result<std::string> answer) override {
    channel_->reply(connection, call, std::move(answer));
  }
  void close(rpc::ConnectionId connection, const Error& reason) override {
    channel_->close(connection, reason);
  }
  rpc::ChannelStatus status() const override { return channel_->status(); }

 private:
  void on_connected(rpc::ConnectionId connection, const rpc::Peer& peer) override {
    box_.post([this, connection, peer] { events_.on_connected(connection, peer); });
  }
  void on_message(rpc::ConnectionId connection, std::string message) override {
    box_.post([this, connection, message = std::move(message)] {
      events_.on_message(connection, message);
    });
  }
  void on_call(rpc::ConnectionId connection, rpc::CallId call, std::string request) override {
    box_.post([this, connection, call, request = std::move(request)] {
      events_.on_call(connection, call, request);
    });
  }
  void on_call_cancelled(rpc::ConnectionId connection, rpc::CallId call) override {
    box_.post([this, connection, call] { events_.on_call_cancelled(connection, call); });
  }
  void on_closed(rpc::ConnectionId connection, const rpc::Peer& peer,
                 const Error& reason) override {
    box_.post([this, connection, peer, reason] { events_.on_closed(connection, peer, reason); });
  }
  void on_connect_failed(const std::string& name, const Error& error) override {
    box_.post([this, name, error] { events_.on_connect_failed(name, error); });
  }

  rpc::ChannelEvents& events_;
  io::PostBox box_;
  std::unique_ptr<rpc::Channel> channel_;
};

/// The same for the list of members.
class GatedMembership final : public rpc::MembershipEvents {
 public:
  GatedMembership(rpc::MembershipEvents& events, io::Executor& gate)
      : events_(events), box_(gate) {}

  void on_joined(const rpc::Member& member) override {
    box_.post([this, member] { events_.on_joined(member); });
  }
  void on_changed(const rpc::Member& member) override {
    box_.post([this, member] { events_.on_changed(member); });
  }
  void on_left(const rpc::Member& member) override {
    box_.post([this, member] { events_.on_left(member); });
  }

 private:
  rpc::MembershipEvents& events_;
  io::PostBox box_;
};

}  // namespace tandem::sim
