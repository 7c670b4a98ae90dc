#include "comm/regroup.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "base/list_text.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kMagic = "tandem reunion";
constexpr milliseconds kLook{20};   // between two looks at who is still there
constexpr milliseconds kAgain{20};  // before the next try with a leader that turned us away
constexpr milliseconds kHelloTimeout{2000};
constexpr milliseconds kLate{2000};  // a rank that takes longer is logged
/// An answer about the receiver: it does not go on. Any other refusal means: come again.
constexpr const char* kFinal = "not to go on";

std::string listener_name(const std::string& key, int rank) {
  return fmt::format("tandem-{}-{}", key, rank);
}

/// This rank's part in a reunion; it leads one when all below it are gone.
class Survivor {
 public:
  Survivor(const ReunionOptions& options, io::Listener& listener, Roster& roster)
      : options_(options),
        listener_(listener),
        roster_(roster),
        deadline_(steady_clock::now() + options.timeout),
        late_(steady_clock::now() + kLate),
        guests_(static_cast<size_t>(roster.ranks_count())),
        probes_(guests_.size()) {}

  Result<Reunion> run() {
    while (true) {
      if (roster_.is_gone(options_.rank)) return roster_.end_of(options_.rank);
      const int leader = roster_.survivors().front();
      auto met = TANDEM_TRY(leader == options_.rank ? lead() : visit(leader));
      if (met) return std::move(*met);
    }
  }

 private:
  struct Guest {
    Connection connection;
    std::string brings;
    bool is_ready = false;
  };

  /// kDeadlineExceeded when this takes too long; logs for whom, now and then.
  Result<void> wait_for(const std::string& names) {
    const auto now = steady_clock::now();
    if (now >= deadline_) {
      return make_error(Code::kDeadlineExceeded,
                        fmt::format("rank {} cannot go on after a loss: {} ms later it still waits "
                                    "for {}; end what is stopped, and start the ranks again",
                                    options_.rank, options_.timeout.count(), names));
    }
    if (now < late_) return {};
    spdlog::warn("comm_regroup_late rank={} late=\"{}\"", options_.rank, names);
    late_ = now + 2 * kLate;
    return {};
  }

  /// None when the rank is gone.
  Result<std::optional<io::Socket>> find(int rank) {
    auto socket = io::Socket::connect_local(listener_name(options_.key, rank));
    if (socket.ok()) return std::optional(std::move(*socket));
    if (socket.error().code != Code::kNotFound) return socket.error();
    roster_.lose(rank);
    return std::optional<io::Socket>();
  }

  // As a guest.

  /// Asks the rank that seems to lead. None when it does not, or not yet: look again.
  Result<std::optional<Reunion>> visit(int leader) {
    auto socket = TANDEM_TRY(find(leader));
    if (!socket) return std::optional<Reunion>();
    Connection connection(std::move(*socket));
    // Should that rank end now, reading its answer says so.
    (void)connection
        .send({.kind = Message::Kind::kHello,
               .rank = static_cast<uint32_t>(options_.rank),
               .parts = {kMagic, options_.brings}},
              steady_clock::now() + kHelloTimeout)
        .ok();
    while (true) {
      const auto answer = connection.receive(steady_clock::now() + kLook);
      if (answer.ok() && answer->kind == Message::Kind::kWelcome) {
        return enter(std::move(connection), *answer);
      }
      if (answer.ok() && answer->kind == Message::Kind::kRefused && answer->parts.size() == 2 &&
          answer->parts[0] == kFinal) {
        return make_error(Code::kUnavailable, answer->parts[1]);
      }
      if (answer.ok() || answer.error().code != Code::kDeadlineExceeded) {
        std::this_thread::sleep_for(kAgain);
        return std::optional<Reunion>();
      }
      TANDEM_TRY(wait_for(roster_.name(leader)));
    }
  }

  Result<std::optional<Reunion>> enter(Connection connection, const Message& welcome) {
    Reunion met;
    for (size_t i = 0; i + 1 < welcome.parts.size(); i += 2) {
      const std::string& digits = welcome.parts[i];
      int rank = -1;
      std::from_chars(digits.data(), digits.data() + digits.size(), rank);
      if (rank < 0 || rank >= roster_.ranks_count()) {
        return make_error(Code::kDataLoss, "the leader of a reunion names a rank that never was");
      }
      met.ranks.push_back(rank);
      met.brought.push_back(welcome.parts[i + 1]);
    }
    if (std::ranges::find(met.ranks, options_.rank) == met.ranks.end()) {
      return make_error(Code::kDataLoss, "the leader of a reunion welcomes this rank without it");
    }
    (void)connection.send({.kind = Message::Kind::kAlive}, steady_clock::now() + kHelloTimeout)
        .ok();
    while (true) {
      auto descriptor = connection.receive_descriptor(steady_clock::now() + kLook);
      if (descriptor.ok()) {
        met.memory.emplace(TANDEM_TRY(
            io::SharedMemory::map(std::move(*descriptor), options_.heap_bytes * met.ranks.size())));
        break;
      }
      if (descriptor.error().code != Code::kDeadlineExceeded) return std::optional<Reunion>();
      TANDEM_TRY(wait_for(roster_.name(met.ranks.front())));
    }
    for (int rank = 0; rank < roster_.ranks_count(); ++rank) {
      if (std::ranges::find(met.ranks, rank) == met.ranks.end()) roster_.lose(rank);
    }
    met.connections.resize(met.ranks.size());
    met.connections[0].emplace(std::move(connection));
    return std::optional(std::move(met));
  }

  // As the leader.

  /// One look at everybody. None while somebody is missing.
  Result<std::optional<Reunion>> lead() {
    for (int rank = options_.rank + 1; rank < roster_.ranks_count(); ++rank) {
      TANDEM_TRY(look_at(rank));
    }
    const std::vector<int> ranks = roster_.survivors();
    if (ranks.empty() || ranks.front() != options_.rank) return std::optional<Reunion>();
    std::vector<std::string> missing;
    for (const int rank : ranks) {
      if (rank == options_.rank || guests_[static_cast<size_t>(rank)]) continue;
      missing.push_back(roster_.name(rank));
    }
    if (missing.empty()) return receive_all(ranks);
    TANDEM_TRY(wait_for(list_text(missing)));
    auto socket = TANDEM_TRY(listener_.accept(steady_clock::now() + kLook));
    if (socket) accept(Connection(std::move(*socket)));
    return std::optional<Reunion>();
  }

  Result<void> look_at(int rank) {
    if (roster_.is_gone(rank)) return {};
    auto& guest = guests_[static_cast<size_t>(rank)];
    if (guest && !guest->connection.take().ok()) guest.reset();
    // Held open: it ends with the rank, even if that never comes.
    auto& probe = probes_[static_cast<size_t>(rank)];
    std::byte ignored[1];
    if (probe && !probe->receive_some(ignored).ok()) probe.reset();
    if (probe) return {};
    auto found = TANDEM_TRY(find(rank));
    if (found) probe.emplace(std::move(*found));
    return {};
  }

  /// What is no hello comes from a probe of another time: its rank has found another leader.
  void accept(Connection connection) {
    const auto hello = connection.receive(steady_clock::now() + kHelloTimeout);
    if (!hello.ok() || hello->kind != Message::Kind::kHello || hello->parts.size() != 2 ||
        hello->parts[0] != kMagic || hello->rank >= guests_.size()) {
      return;
    }
    const auto rank = static_cast<int>(hello->rank);
    if (roster_.is_gone(rank)) {
      refuse(connection, {kFinal, roster_.end_of(rank).what});
      return;
    }
    guests_[hello->rank].emplace(Guest{std::move(connection), hello->parts[1]});
  }

  static void refuse(Connection& connection, std::vector<std::string> why) {
    // A rank that cannot be told sees the connection end.
    (void)connection
        .send({.kind = Message::Kind::kRefused, .parts = std::move(why)},
              steady_clock::now() + kHelloTimeout)
        .ok();
  }

  /// Everyone has come: tells them who goes on. Nobody has the memory before all have answered, so
  /// none starts without the others; then all get it, and who dies from here on is a member.
  Result<std::optional<Reunion>> receive_all(const std::vector<int>& ranks) {
    Message welcome{.kind = Message::Kind::kWelcome};
    Reunion met{.ranks = ranks};
    met.connections.resize(ranks.size());
    for (const int rank : ranks) {
      met.brought.push_back(rank == options_.rank ? options_.brings
                                                  : guests_[static_cast<size_t>(rank)]->brings);
      welcome.parts.push_back(std::to_string(rank));
      welcome.parts.push_back(met.brought.back());
    }
    const bool all_ready = tell(welcome, ranks) && TANDEM_TRY(wait_for_ready(ranks));
    if (!all_ready) {
      for (auto& guest : guests_) {
        if (guest) refuse(guest->connection, {"somebody ended while the ranks were meeting"});
        guest.reset();
      }
      return std::optional<Reunion>();
    }
    met.memory.emplace(TANDEM_TRY(io::SharedMemory::create(options_.heap_bytes * ranks.size())));
    for (size_t i = 1; i < ranks.size(); ++i) {
      Connection& connection = guests_[static_cast<size_t>(ranks[i])]->connection;
      (void)connection.send_descriptor(met.memory->descriptor()).ok();
      met.connections[i].emplace(std::move(connection));
    }
    return std::optional(std::move(met));
  }

  bool tell(const Message& message, const std::vector<int>& ranks) {
    return std::ranges::all_of(ranks, [&](int rank) {
      if (rank == options_.rank) return true;
      Guest& guest = *guests_[static_cast<size_t>(rank)];
      guest.is_ready = false;
      return guest.connection.send(message, steady_clock::now() + kHelloTimeout).ok();
    });
  }

  /// False when one of them has ended instead.
  Result<bool> wait_for_ready(const std::vector<int>& ranks) {
    while (true) {
      std::vector<std::string> missing;
      std::vector<int> descriptors;
      for (const int rank : ranks) {
        if (rank == options_.rank) continue;
        Guest& guest = *guests_[static_cast<size_t>(rank)];
        const auto message = guest.connection.take();
        if (!message.ok()) return false;
        if (message->has_value()) guest.is_ready = true;
        if (guest.is_ready) continue;
        missing.push_back(roster_.name(rank));
        descriptors.push_back(guest.connection.descriptor());
      }
      if (missing.empty()) return true;
      TANDEM_TRY(wait_for(list_text(missing)));
      io::wait_readable(descriptors, kLook);
    }
  }

  const ReunionOptions& options_;
  io::Listener& listener_;
  Roster& roster_;
  const io::Deadline deadline_;
  steady_clock::time_point late_;
  std::vector<std::optional<Guest>> guests_;       // by number at the start
  std::vector<std::optional<io::Socket>> probes_;  // by number at the start
};

}  // namespace

Roster::Roster(std::vector<RankPlace> places, int inseparable_ranks)
    : places_(std::move(places)),
      inseparable_ranks_(inseparable_ranks),
      gone_(places_.size()),
      left_alone_(places_.size()) {}

std::string Roster::name(int rank) const {
  return place(rank).name_of(rank);
}

void Roster::lose(int rank) {
  gone_[static_cast<size_t>(rank)] = true;
  left_alone_[static_cast<size_t>(rank)] = false;
  const int first = rank / inseparable_ranks_ * inseparable_ranks_;
  for (int other = first; other < std::min(first + inseparable_ranks_, ranks_count()); ++other) {
    if (is_gone(other)) continue;
    gone_[static_cast<size_t>(other)] = true;
    left_alone_[static_cast<size_t>(other)] = true;
  }
}

void Roster::lose_all(const GroupHealth& health) {
  for (int rank = 0; rank < health.ranks_count(); ++rank) {
    if (health.is_gone(rank)) lose(health.number(rank));
  }
}

std::vector<int> Roster::survivors() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < ranks_count(); ++rank) {
    if (!is_gone(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<LostRank> Roster::losses() const {
  std::vector<LostRank> lost;
  for (int rank = 0; rank < ranks_count(); ++rank) {
    if (is_gone(rank)) lost.push_back({rank, name(rank)});
  }
  return lost;
}

Error Roster::end_of(int rank) const {
  const int first = rank / inseparable_ranks_ * inseparable_ranks_;
  for (int other = first; other < std::min(first + inseparable_ranks_, ranks_count()); ++other) {
    if (!is_gone(other) || left_alone_[static_cast<size_t>(other)]) continue;
    if (other == rank) break;
    return make_error(Code::kUnavailable,
                      fmt::format("{} is gone, and rank {} cannot go on without it; start the "
                                  "ranks again",
                                  name(other), rank));
  }
  return make_error(Code::kUnavailable,
                    fmt::format("the other ranks have lost sight of {} and go on without it; start "
                                "the ranks again",
                                name(rank)));
}

Result<io::Listener> listen_for_survivors(const std::string& key, int rank) {
  return io::Listener::listen_local(listener_name(key, rank));
}

Result<Reunion> meet_again(const ReunionOptions& options, io::Listener& listener, Roster& roster) {
  return Survivor(options, listener, roster).run();
}

}  // namespace tandem::comm
