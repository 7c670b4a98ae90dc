#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <list>

#include "base/list_text.h"
#include "comm/missing_log.h"
#include "comm/regroup.h"
#include "comm/rendezvous_sides.h"
#include "io/host.h"

namespace tandem::comm {
namespace {

using std::chrono::steady_clock;

/// Connections that have said nothing yet. More than this besides the ranks are not ours.
constexpr size_t kStrangersMax = 64;
constexpr size_t kMissingNamedMax = 8;

/// Rank 0's side. Owns the connections until all have met.
class Host {
 public:
  Host(const RendezvousOptions& options, io::Listener listener, io::Listener local, Meeting meeting)
      : options_(options),
        own_(make_hello(options)),
        start_(steady_clock::now()),
        listener_(std::move(listener)),
        local_(std::move(local)),
        meeting_(std::move(meeting)) {
    meeting_.connections.resize(static_cast<size_t>(options.ranks_count));
    meeting_.places.resize(static_cast<size_t>(options.ranks_count));
    meeting_.places[0] = own_.place;
  }

  /// On failure every rank that came is told the same reason.
  Result<Meeting> run() {
    auto met = gather();
    if (met.ok()) met = welcome();
    if (met.ok()) met = hand_over();
    if (met.ok()) return std::move(meeting_);
    for (auto& connection : meeting_.connections) {
      if (connection) refuse(*connection, met.error().what, rank_at_fault_);
    }
    (void)accept_callers().ok();  // also who came just now is told, instead of finding nobody
    for (Connection& caller : callers_) {
      (void)caller.receive(steady_clock::now() + kLook).ok();
      refuse(caller, met.error().what, rank_at_fault_);
    }
    return met.error();
  }

 private:
  /// What has come is read first: a socket that is closed with unread bytes is reset, and the
  /// reason may be lost with it.
  static void refuse(Connection& connection, const std::string& why, int rank_at_fault) {
    for (auto unread = connection.take(); unread.ok() && unread->has_value();) {
      unread = connection.take();
    }
    // A rank that cannot be told sees the connection end.
    (void)connection
        .send({.kind = Message::Kind::kRefused,
               .rank = static_cast<uint32_t>(rank_at_fault),
               .parts = {why}},
              steady_clock::now() + kRefuseTimeout)
        .ok();
  }

  /// Whoever connects is heard when it speaks: neither a stranger's silence nor a rank that was
  /// stopped just now holds up the others.
  Result<void> gather() {
    MissingLog log(options_.rank);
    while (!missing().empty()) {
      TANDEM_TRY(check_joined());
      if (steady_clock::now() >= start_ + options_.start_timeout) return nobody_came();
      log.look(missing());
      wait_for_callers();
      TANDEM_TRY(accept_callers());
      hear_callers();
    }
    return {};
  }

  Result<void> accept_callers() {
    while (true) {
      auto socket = TANDEM_TRY(listener_.accept(steady_clock::now()));
      if (!socket.has_value()) return {};
      callers_.emplace_back(std::move(*socket));
    }
  }

  void wait_for_callers() const {
    std::vector<int> descriptors = {listener_.descriptor()};
    for (const Connection& caller : callers_) descriptors.push_back(caller.descriptor());
    io::wait_readable(descriptors, kLook);
  }

  void hear_callers() {
    for (auto caller = callers_.begin(); caller != callers_.end();) {
      auto message = caller->take();
      if (message.ok() && !message->has_value()) {
        ++caller;
        continue;
      }
      const auto hello = message.ok() ? hello_of(**message) : std::nullopt;
      if (hello.has_value()) {
        join(std::move(*caller), *hello);
      } else {
        send_away(message.ok() ? "no rank of ours" : message.error().what);
      }
      caller = callers_.erase(caller);
    }
    while (callers_.size() > kStrangersMax + meeting_.connections.size()) {
      send_away("it says nothing, and too many do");
      callers_.pop_front();
    }
  }

  void send_away(const std::string& reason) const {
    spdlog::warn("comm_stranger_refused address={} reason=\"{}\"", options_.address.text(), reason);
  }

  /// A process that does not fit is told why, and its place stays free for one that does.
  void join(Connection connection, const Hello& hello) {
    const std::string why = objection(hello);
    if (!why.empty()) {
      spdlog::warn("comm_rank_refused address={} reason=\"{}\"", options_.address.text(), why);
      refuse(connection, why, rank_at_fault_);
      refused_ = why;
      return;
    }
    meeting_.places[static_cast<size_t>(hello.rank)] = hello.place;
    meeting_.connections[static_cast<size_t>(hello.rank)].emplace(std::move(connection));
  }

  /// Why a process cannot be that rank; empty when it can.
  std::string objection(const Hello& hello) const {
    const std::string differ = differences(own_, hello);
    if (!differ.empty()) {
      return "the ranks were started differently: " + differ + "; give all the same flags";
    }
    if (hello.rank == 0 || hello.rank >= options_.ranks_count) {
      return fmt::format("{} is not one of the ranks 1 to {}; check --node-rank", hello.name(),
                         options_.ranks_count - 1);
    }
    if (meeting_.connections[static_cast<size_t>(hello.rank)]) {
      return fmt::format("two processes claim one rank: {} and {}; check --node-rank", hello.name(),
                         name_of(hello.rank));
    }
    return "";
  }

  /// Of a rank that has come.
  std::string name_of(int rank) const {
    return Hello{.rank = rank, .place = meeting_.places[static_cast<size_t>(rank)]}.name();
  }

  /// "rank 1 of host b, rank 3 of host b"; empty when all have come. Nobody has seen them, but all
  /// ranks of a group run on the host of rank 0.
  std::string missing() const {
    return names_of([&](size_t rank) { return !meeting_.connections[rank]; });
  }

  template <typename Predicate>
  std::string names_of(Predicate is_meant) const {
    std::vector<std::string> named;
    size_t count = 0;
    for (size_t rank = 1; rank < meeting_.places.size(); ++rank) {
      if (!is_meant(rank)) continue;
      if (++count > kMissingNamedMax) continue;
      named.push_back(fmt::format("rank {} of host {}", rank, meeting_.places[0].host));
    }
    std::string ranks = list_text(named);
    if (count > kMissingNamedMax) ranks += fmt::format(" and {} more", count - kMissingNamedMax);
    return ranks;
  }

  Error nobody_came() const {
    std::string what = fmt::format(
        "{} ms after the start these have not come to {}: {}; start them with this address, or "
        "look into their logs",
        options_.start_timeout.count(), options_.address.text(), missing());
    if (!refused_.empty()) what += ". The last one that was refused: " + refused_;
    return make_error(Code::kDeadlineExceeded, what);
  }

  /// A rank that came and died must not be waited for.
  Result<void> check_joined() {
    for (int rank = 1; rank < options_.ranks_count; ++rank) {
      auto& connection = meeting_.connections[static_cast<size_t>(rank)];
      if (!connection) continue;
      if (const auto message = connection->take(); !message.ok()) {
        return ended(rank);
      }
    }
    return {};
  }

  Error ended(int rank) {
    meeting_.connections[static_cast<size_t>(rank)].reset();
    rank_at_fault_ = rank;
    return make_error(Code::kUnavailable,
                      name_of(rank) + " ended while the ranks were meeting; look into its log");
  }

  Result<void> welcome() {
    Message message{.kind = Message::Kind::kWelcome, .parts = {meeting_.key}};
    for (const RankPlace& place : meeting_.places) {
      message.parts.push_back(place.host);
      message.parts.push_back(std::to_string(place.process_id));
    }
    for (int rank = 1; rank < options_.ranks_count; ++rank) {
      auto& connection = meeting_.connections[static_cast<size_t>(rank)];
      if (!connection->send(message, steady_clock::now() + options_.start_timeout).ok()) {
        return ended(rank);
      }
    }
    return {};
  }

  Result<void> hand_over() {
    const auto deadline = steady_clock::now() + options_.start_timeout;
    MissingLog log(options_.rank);
    std::vector<bool> handed(meeting_.places.size());
    const auto waiting = [&] { return names_of([&](size_t rank) { return !handed[rank]; }); };
    while (!waiting().empty()) {
      TANDEM_TRY(check_joined());
      if (steady_clock::now() >= deadline) {
        return make_error(Code::kDeadlineExceeded,
                          waiting() +
                              " did not fetch the shared memory in time; all ranks of a "
                              "group must run on one host");
      }
      log.look(waiting());
      auto socket = TANDEM_TRY(local_.accept(steady_clock::now() + kLook));
      if (socket.has_value() && socket->send_descriptor(meeting_.memory.descriptor()).ok()) {
        handed[rank_to_hand(handed, socket->peer_process_id())] = true;
      }
    }
    return {};
  }

  /// One that waits in that process; ranks of a process are alike. In another namespace of
  /// processes its number is not the one that it told: then any.
  size_t rank_to_hand(const std::vector<bool>& handed, int process_id) const {
    size_t any = 0;
    for (size_t rank = 1; rank < handed.size(); ++rank) {
      if (handed[rank]) continue;
      if (meeting_.places[rank].process_id == process_id) return rank;
      any = rank;
    }
    return any;
  }

  const RendezvousOptions& options_;
  const Hello own_;
  const steady_clock::time_point start_;
  io::Listener listener_;
  io::Listener local_;
  Meeting meeting_;
  std::list<Connection> callers_;  // that have not said who they are, oldest first
  std::string refused_;            // why the last process was refused
  int rank_at_fault_ = 0;          // a rank that died; otherwise rank 0, which refuses
};

Result<std::string> make_key() {
  std::byte random[16];
  TANDEM_TRY(io::fill_random(random));
  std::string key;
  for (const std::byte byte : random) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    key.push_back(kDigits[static_cast<size_t>(byte >> 4)]);
    key.push_back(kDigits[static_cast<size_t>(byte & std::byte{15})]);
  }
  return key;
}

}  // namespace

Result<Meeting> meet_as_host(const RendezvousOptions& options) {
  std::string key = TANDEM_TRY(make_key());
  auto memory = TANDEM_TRY(
      io::SharedMemory::create(options.heap_bytes * static_cast<size_t>(options.ranks_count)));
  auto listener = TANDEM_TRY(io::Listener::listen_tcp(options.address));
  auto local = TANDEM_TRY(io::Listener::listen_local(local_name(key)));
  auto survivors = TANDEM_TRY(listen_for_survivors(key, 0));
  return Host(options, std::move(listener), std::move(local),
              {.memory = std::move(memory),
               .key = std::move(key),
               .survivors = std::move(survivors)})
      .run();
}

}  // namespace tandem::comm
