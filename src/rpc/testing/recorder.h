#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/channel.h"

namespace tandem::rpc {

/// One process of a test: its channel, and what has happened on it as lines of text. A peer's
/// connection is found by its name. Calls are answered at once with "re: " before them, unless
/// `answers` is false.
struct Recorder final : ChannelEvents {
  explicit Recorder(std::string name) : name(std::move(name)) {}

  void on_connected(ConnectionId connection, const Peer& peer) override {
    connections[peer.name] = connection;
    names[connection] = peer.name;
    add("connected " + peer.name + "#" + std::to_string(peer.generation));
  }
  void on_message(ConnectionId connection, std::string message) override {
    messages.push_back(message);
    add("message " + names.at(connection) + ": " + shorten(message));
    if (when_message) when_message(connection, message);
  }
  void on_call(ConnectionId connection, CallId call, std::string request) override {
    asked.emplace_back(connection, call);
    add("call " + names.at(connection) + ": " + shorten(request));
    if (answers) channel->reply(connection, call, "re: " + request);
  }
  void on_call_cancelled(ConnectionId connection, CallId) override {
    add("cancelled " + names.at(connection));
  }
  void on_closed(ConnectionId connection, const Peer& peer, const Error& reason) override {
    if (connections[peer.name] == connection) connections.erase(peer.name);
    names.erase(connection);
    reasons.push_back(reason);
    add("closed " + peer.name);
  }
  void on_connect_failed(const std::string& peer, const Error& error) override {
    failures.push_back(error);
    add("failed " + peer);
  }

  bool is_connected(const std::string& peer) const { return connections.contains(peer); }
  Result<void> send(const std::string& peer, std::string message) {
    return channel->send(connections.at(peer), std::move(message));
  }
  /// The answer comes as a line: "answer: text" or "no answer: code".
  Result<CallId> call(const std::string& peer, std::string request,
                      std::chrono::milliseconds time_max) {
    return channel->call(
        connections.at(peer), std::move(request), time_max, [this](Result<std::string> answer) {
          add(answer.ok() ? "answer: " + shorten(*answer)
                          : std::string("no answer: ") + code_name(answer.error().code));
          if (!answer.ok()) reasons.push_back(answer.error());
        });
  }
  int64_t count(const std::string& line) const {
    return std::count(lines.begin(), lines.end(), line);
  }

  const std::string name;
  std::vector<std::string> lines;
  std::vector<std::string> messages;
  std::vector<Error> reasons;
  std::vector<Error> failures;
  std::map<std::string, ConnectionId> connections;
  std::map<ConnectionId, std::string> names;
  std::vector<std::pair<ConnectionId, CallId>> asked;
  bool answers = true;
  std::function<void(ConnectionId, const std::string&)> when_message;
  std::function<void(const std::string&)> when_line;
  std::unique_ptr<Channel> channel;  ///< last: it ends first

 private:
  static std::string shorten(const std::string& text) {
    return text.size() <= 40 ? text : std::to_string(text.size()) + " bytes";
  }
  void add(std::string line) {
    lines.push_back(std::move(line));
    if (when_line) when_line(lines.back());
  }
};

}  // namespace tandem::rpc
