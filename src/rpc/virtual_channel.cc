#include "rpc/virtual_channel.h"

#include "rpc/channel_core.h"

namespace tandem::rpc {

/// One process's place in the network.
class VirtualTransport final : public Transport {
 public:
  VirtualTransport(VirtualNetwork& network, const ChannelOptions& options, std::string address)
      : network_(network), options_(options), address_(std::move(address)) {}
  ~VirtualTransport() override {
    network_.remove(address_);
    const Error gone = make_error(Code::kUnavailable, "its process has ended");
    for (const auto& [id, end] : ends_) network_.close(end, gone);
  }

  void start(TransportEvents& events) override { events_ = &events; }
  void dial(ConnectionId id, const std::string& address) override {
    ends_.emplace(id, network_.dial(*this, id, address));
  }
  Result<void> send(ConnectionId id, Frame frame) override {
    return network_.send(ends_.at(id), std::move(frame));
  }
  void close(ConnectionId id, const Error& reason) override {
    const auto end = ends_.find(id);
    if (end == ends_.end()) return;
    network_.close(end->second, reason);
    ends_.erase(end);
  }

  // For the network:
  std::optional<ConnectionId> on_incoming(VirtualNetwork::PipeEnd end) {
    const auto id = events_->on_incoming();
    if (id) ends_.emplace(*id, end);
    return id;
  }
  void on_frame(ConnectionId id, Frame frame) { events_->on_frame(id, std::move(frame)); }
  void on_ended(ConnectionId id, const Error& reason) {
    ends_.erase(id);
    events_->on_ended(id, reason);
  }
  const ChannelOptions& options() const { return options_; }

 private:
  VirtualNetwork& network_;
  const ChannelOptions options_;
  const std::string address_;
  TransportEvents* events_ = nullptr;
  std::map<ConnectionId, VirtualNetwork::PipeEnd> ends_;
};

Result<std::unique_ptr<Channel>> VirtualNetwork::open(const ChannelOptions& options,
                                                      const std::string& address,
                                                      ChannelEvents& events) {
  if (listeners_.contains(address)) {
    return make_error(Code::kFailedPrecondition, "the address " + address + " is in use");
  }
  auto transport = std::make_unique<VirtualTransport>(*this, options, address);
  listeners_.emplace(address, transport.get());
  return ChannelCore::create(options, executor_, events, std::move(transport));
}

// What the channels do.

VirtualNetwork::PipeEnd VirtualNetwork::dial(VirtualTransport& dialer, ConnectionId id,
                                             const std::string& address) {
  const uint64_t pipe_id = ++pipes_made_;
  Pipe& pipe = pipes_[pipe_id];
  pipe.address = address;
  pipe.times = dialer.options().times;
  pipe.ends[0].transport = &dialer;
  pipe.ends[0].id = id;
  pipe.ends[0].name = dialer.options().self.name;
  if (const auto listener = listeners_.find(address); listener != listeners_.end()) {
    pipe.ends[1].name = listener->second->options().self.name;
  }
  timers_.at(arrival(pipe.ends[1]), [this, pipe_id] { arrive(pipe_id); });
  return {pipe_id, 0};
}

Result<void> VirtualNetwork::send(PipeEnd from, Frame frame) {
  Pipe& pipe = *find(from.pipe);
  const ChannelLimits& limits = pipe.ends[from.side].transport->options().limits;
  const PipeEnd to = from.other();
  End& target = pipe.ends[to.side];
  if (is_full(limits, target.messages, target.bytes)) {
    return queue_full(target.name, target.messages, target.bytes);
  }
  target.messages += 1;
  target.bytes += queue_bytes(frame);
  timers_.at(arrival(target), [this, to, losses = target.losses, frame = std::move(frame)] {
    deliver(to, losses, frame);
  });
  return {};
}

void VirtualNetwork::close(PipeEnd at, const Error& reason) {
  Pipe& pipe = *find(at.pipe);
  const PipeEnd other = at.other();
  End& target = pipe.ends[other.side];
  // The system may still send what it has taken, or not.
  if (random_() % 2 == 0) lose(target);
  Error told = reason;
  told.what = "\"" + pipe.ends[at.side].name + "\" closed the connection: " + reason.what;
  release(at);
  if (find(at.pipe) != nullptr) end_later(other, told);
}

// What the network does.

void VirtualNetwork::arrive(uint64_t pipe_id) {
  Pipe* pipe = find(pipe_id);
  if (pipe == nullptr || pipe->arrived) return;
  if (is_blocked(*pipe)) return watch_silence(pipe_id);
  const auto listener = listeners_.find(pipe->address);
  if (listener == listeners_.end()) {
    const Error nobody = make_error(Code::kUnavailable, "nobody listens at " + pipe->address);
    return end_later({pipe_id, 0}, nobody);
  }
  const auto id = listener->second->on_incoming({pipe_id, 1});
  if (!id) {
    const Error full = make_error(Code::kResourceExhausted,
                                  "the peer at " + pipe->address + " has connections_max peers");
    return end_later({pipe_id, 0}, full);
  }
  pipe->arrived = true;
  End& end = pipe->ends[1];
  end.transport = listener->second;
  end.id = *id;
  end.name = end.transport->options().self.name;
  flush({pipe_id, 1});
}

void VirtualNetwork::deliver(PipeEnd to, uint64_t losses, Frame frame) {
  Pipe* pipe = find(to.pipe);
  if (pipe == nullptr || pipe->ends[to.side].losses != losses) return;
  End& end = pipe->ends[to.side];
  const bool waits = to.side == 1 && !pipe->arrived;
  if (waits || is_blocked(*pipe) || !end.held.empty()) {
    end.held.push_back(std::move(frame));
    return;
  }
  end.messages -= 1;
  end.bytes -= queue_bytes(frame);
  if (end.transport != nullptr) end.transport->on_frame(end.id, std::move(frame));
}

void VirtualNetwork::flush(PipeEnd to) {
  // A frame may lead to the end of the connection, so that it is looked up for each.
  for (Pipe* pipe = find(to.pipe); pipe != nullptr; pipe = find(to.pipe)) {
    End& end = pipe->ends[to.side];
    if (is_blocked(*pipe) || (to.side == 1 && !pipe->arrived)) return;
    if (end.held.empty()) {
      if (end.over) end_later(to, *std::exchange(end.over, std::nullopt));
      return;
    }
    Frame frame = std::move(end.held.front());
    end.held.pop_front();
    end.messages -= 1;
    end.bytes -= queue_bytes(frame);
    if (end.transport != nullptr) end.transport->on_frame(end.id, std::move(frame));
  }
}

void VirtualNetwork::end_later(PipeEnd at, const Error& reason) {
  Pipe& pipe = *find(at.pipe);
  timers_.at(arrival(pipe.ends[at.side]), [this, at, reason] { end(at, reason); });
}

void VirtualNetwork::end(PipeEnd at, const Error& reason) {
  Pipe* pipe = find(at.pipe);
  if (pipe == nullptr) return;
  End& end = pipe->ends[at.side];
  if (is_blocked(*pipe) || !end.held.empty()) {
    end.over = reason;
    return;
  }
  VirtualTransport* transport = end.transport;
  const ConnectionId id = end.id;
  release(at);
  if (transport != nullptr) transport->on_ended(id, reason);
}

void VirtualNetwork::lose(End& end) {
  end.losses += 1;
  end.held.clear();
  end.messages = 0;
  end.bytes = 0;
}

io::Time VirtualNetwork::arrival(End& end) {
  const auto range = static_cast<uint64_t>((delay_.max - delay_.min).count());
  const std::chrono::nanoseconds delay =
      delay_.min + std::chrono::nanoseconds(static_cast<int64_t>(random_() % (range + 1)));
  end.last_arrival = std::max(end.last_arrival, timers_.now() + delay);
  return end.last_arrival;
}

void VirtualNetwork::release(PipeEnd at) {
  Pipe& pipe = *find(at.pipe);
  pipe.ends[at.side].transport = nullptr;
  const bool other_waits = pipe.ends[1 - at.side].transport != nullptr;
  const bool on_its_way = !pipe.arrived && at.side == 0 && !pipe.ends[1].over;
  if (other_waits || on_its_way) return;
  if (pipe.silence) timers_.cancel(*pipe.silence);
  pipes_.erase(at.pipe);
}

VirtualNetwork::Pipe* VirtualNetwork::find(uint64_t id) {
  const auto found = pipes_.find(id);
  return found == pipes_.end() ? nullptr : &found->second;
}

// Faults.

bool VirtualNetwork::is_blocked(const Pipe& pipe) const {
  return partitions_.contains({pipe.ends[0].name, pipe.ends[1].name});
}

std::vector<uint64_t> VirtualNetwork::pipes_between(const std::string& name,
                                                    const std::string& other) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, pipe] : pipes_) {
    const std::string& a = pipe.ends[0].name;
    const std::string& b = pipe.ends[1].name;
    if ((a == name && b == other) || (a == other && b == name)) ids.push_back(id);
  }
  return ids;
}

void VirtualNetwork::drop_connections(const std::string& name, const std::string& other) {
  const Error reset = make_error(Code::kUnavailable, "the connection was reset by the network");
  for (const uint64_t id : pipes_between(name, other)) {
    for (const int side : {0, 1}) {
      lose(find(id)->ends[side]);
      end_later({id, side}, reset);
    }
  }
}

void VirtualNetwork::partition(const std::string& name, const std::string& other) {
  partitions_.insert({name, other});
  partitions_.insert({other, name});
  for (const uint64_t id : pipes_between(name, other)) watch_silence(id);
}

void VirtualNetwork::heal(const std::string& name, const std::string& other) {
  partitions_.erase({name, other});
  partitions_.erase({other, name});
  for (const uint64_t id : pipes_between(name, other)) {
    Pipe& pipe = *find(id);
    if (pipe.silence) timers_.cancel(*pipe.silence);
    pipe.silence.reset();
    if (!pipe.arrived) timers_.at(arrival(pipe.ends[1]), [this, id] { arrive(id); });
    // What is still on the way queues up behind what was held.
    for (const int side : {0, 1}) timers_.after({}, [this, id, side] { flush({id, side}); });
  }
}

void VirtualNetwork::watch_silence(uint64_t id) {
  Pipe& pipe = *find(id);
  if (pipe.silence) return;
  pipe.silence = timers_.after(pipe.times.silence_probe + pipe.times.silence_max, [this, id] {
    const Error silent = make_error(Code::kUnavailable, "the peer gave no sign of life");
    for (const int side : {0, 1}) {
      Pipe* pipe = find(id);
      if (pipe == nullptr) break;
      End& end = pipe->ends[side];
      VirtualTransport* transport = end.transport;
      const ConnectionId connection = end.id;
      if (transport == nullptr) continue;
      release({id, side});
      transport->on_ended(connection, silent);
    }
    pipes_.erase(id);  // both ends may have been closed before
  });
}

}  // namespace tandem::rpc
