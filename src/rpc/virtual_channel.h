#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/executor.h"
#include "io/timers.h"
#include "rpc/channel.h"
#include "rpc/transport.h"

namespace tandem::rpc {

class VirtualTransport;

/// A network in memory for tests and the simulator: its delays and losses depend on the seed and
/// on the calls alone. Destroying a channel is the death of its process: what was on the way is
/// lost or not, and its peers notice after a delay. One thread. Outlives its channels.
class VirtualNetwork {
 public:
  struct Delay {
    std::chrono::nanoseconds min{std::chrono::microseconds(50)};
    std::chrono::nanoseconds max{std::chrono::microseconds(500)};
  };

  VirtualNetwork(io::Executor& executor, uint64_t seed)
      : executor_(executor), timers_(executor), random_(seed) {}

  /// A process that listens at `address`. kFailedPrecondition when one does already.
  Result<std::unique_ptr<Channel>> open(const ChannelOptions& options, const std::string& address,
                                        ChannelEvents& events);

  void set_delay(Delay delay) { delay_ = delay; }
  /// Ends the connections between two processes at once, with what is on the way on them.
  void drop_connections(const std::string& name, const std::string& other);
  /// Nothing passes between the two until heal(). When that comes before one side has given up
  /// (silence_probe + silence_max), all of it arrives after all.
  void partition(const std::string& name, const std::string& other);
  void heal(const std::string& name, const std::string& other);

 private:
  friend class VirtualTransport;

  /// One end of a connection, and what travels towards it.
  struct End {
    VirtualTransport* transport = nullptr;  ///< nothing: closed, or not there yet
    ConnectionId id;
    std::string name;
    size_t messages = 0;  ///< on the way to here
    size_t bytes = 0;
    uint64_t losses = 0;        ///< what was sent before the last loss does not arrive
    io::Time last_arrival{};    ///< nothing overtakes
    std::deque<Frame> held;     ///< until the end of a partition
    std::optional<Error> over;  ///< the same for the news that the other end is closed
  };
  struct Pipe {
    std::string address;
    ChannelTimes times;    ///< of the one who dialled
    bool arrived = false;  ///< at the one who listens
    End ends[2];           ///< the one who dialled, the one who listens
    std::optional<io::TimerId> silence;
  };
  struct PipeEnd {
    uint64_t pipe;
    int side;
    PipeEnd other() const { return {pipe, 1 - side}; }
  };

  // For VirtualTransport:
  PipeEnd dial(VirtualTransport& dialer, ConnectionId id, const std::string& address);
  Result<void> send(PipeEnd from, Frame frame);
  void close(PipeEnd at, const Error& reason);
  void remove(const std::string& address) { listeners_.erase(address); }

  void arrive(uint64_t pipe);
  void deliver(PipeEnd to, uint64_t losses, Frame frame);
  /// Tells an end, in its turn, that the connection is over.
  void end_later(PipeEnd at, const Error& reason);
  void end(PipeEnd at, const Error& reason);
  void flush(PipeEnd to);
  void lose(End& end);
  io::Time arrival(End& end);
  bool is_blocked(const Pipe& pipe) const;
  void watch_silence(uint64_t id);
  void release(PipeEnd at);
  std::vector<uint64_t> pipes_between(const std::string& name, const std::string& other) const;
  Pipe* find(uint64_t id);

  io::Executor& executor_;
  io::Timers timers_;
  std::mt19937_64 random_;
  Delay delay_;
  uint64_t pipes_made_ = 0;
  std::map<uint64_t, Pipe> pipes_;
  std::map<std::string, VirtualTransport*> listeners_;        // by address
  std::set<std::pair<std::string, std::string>> partitions_;  // both orders
};

}  // namespace tandem::rpc
