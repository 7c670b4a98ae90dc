#include "comm/rendezvous.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <list>
#include <thread>

#include "comm/hello.h"
#include "comm/missing_log.h"
#include "comm/regroup.h"
#include "io/host.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kVersion = "1";
constexpr milliseconds kRefuseTimeout{2000};  // a refused process may be slow to take the reason
constexpr milliseconds kLook{100};            // between two looks at who is still there
/// Connections that have said nothing yet. More than this besides the ranks are not ours.
constexpr size_t kStrangersMax = 64;
constexpr size_t kMissingNamedMax = 8;

Hello make_hello(const RendezvousOptions& options) {
  Hello hello{.rank = options.rank,
              .place = place_here(),
              .fields = {{"protocol version", kVersion},
                         {"number of ranks", std::to_string(options.ranks_count)},
                         {"heap bytes", std::to_string(options.heap_bytes)}}};
  hello.fields.insert(hello.fields.end(), options.settings.begin(), options.settings.end());
  return hello;
}

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
    return met.error();
  }

 private:
  static void refuse(Connection& connection, const std::string& why, int rank_at_fault) {
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
      while (true) {
        auto socket = TANDEM_TRY(listener_.accept(steady_clock::now()));
        if (!socket.has_value()) break;
        callers_.emplace_back(std::move(*socket));
      }
      hear_callers();
    }
    return {};
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
    std::string ranks;
    size_t count = 0;
    for (size_t rank = 1; rank < meeting_.places.size(); ++rank) {
      if (!is_meant(rank)) continue;
      if (++count > kMissingNamedMax) continue;
      ranks += fmt::format("{}rank {} of host {}", ranks.empty() ? "" : ", ", rank,
                           meeting_.places[0].host);
    }
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

/// The key is the name of the local socket: who does not know it cannot ask for the memory.
std::string local_name(const std::string& key) {
  return "tandem-" + key;
}

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

Result<Connection> connect_to_host(const RendezvousOptions& options, io::Deadline deadline) {
  MissingLog log(options.rank);
  while (true) {
    auto socket = io::Socket::connect_tcp(options.address, deadline);
    if (socket.ok()) return Connection(std::move(*socket));
    if (steady_clock::now() + kLook >= deadline) {
      return make_error(
          Code::kDeadlineExceeded,
          fmt::format("rank {} of host {} did not find rank 0 of host {} within {} ms: {}; start "
                      "rank 0 there, or look into its log",
                      options.rank, io::host_name(), options.address.host,
                      options.start_timeout.count(), socket.error().what));
    }
    log.look("rank 0 of host " + options.address.host);
    std::this_thread::sleep_for(kLook);
  }
}

/// What rank 0 says next; its refusal or its end is an error.
Result<Message> next_answer(const RendezvousOptions& options, Connection& connection,
                            io::Deadline deadline) {
  MissingLog log(options.rank);
  auto answer = connection.receive(std::min(deadline, log.next()));
  while (!answer.ok() && answer.error().code == Code::kDeadlineExceeded &&
         steady_clock::now() < deadline) {
    log.look("rank 0 of host " + options.address.host + ", or who has not come to it");
    answer = connection.receive(std::min(deadline, log.next()));
  }
  if (!answer.ok()) {
    return make_error(
        Code::kUnavailable,
        fmt::format("rank 0 of host {} (port {}) ended or fell silent while the ranks "
                    "were meeting ({}); look into its log",
                    options.address.host, options.address.port, answer.error().what));
  }
  if (answer->kind == Message::Kind::kRefused && answer->parts.size() == 1) {
    return make_error(Code::kFailedPrecondition, answer->parts[0]);
  }
  return answer;
}

Result<io::SharedMemory> fetch_memory(const std::string& key, size_t bytes, io::Deadline deadline) {
  auto local = TANDEM_TRY(io::Socket::connect_local(local_name(key)));
  return io::SharedMemory::map(TANDEM_TRY(local.receive_descriptor(deadline)), bytes);
}

Result<Meeting> meet_as_guest(const RendezvousOptions& options) {
  const io::Deadline deadline = steady_clock::now() + options.start_timeout;
  Connection connection = TANDEM_TRY(connect_to_host(options, deadline));
  const Hello hello = make_hello(options);
  // If rank 0 is gone again, reading its answer says so.
  (void)connection.send(encode(hello), deadline).ok();

  // Rank 0 reports who is missing; it gets a little longer than it gives itself.
  const io::Deadline patience = deadline + 2 * kRefuseTimeout;
  const Message welcome = TANDEM_TRY(next_answer(options, connection, patience));
  const auto ranks = static_cast<size_t>(options.ranks_count);
  if (welcome.kind != Message::Kind::kWelcome || welcome.parts.size() != 1 + 2 * ranks) {
    return make_error(Code::kDataLoss, "rank 0 at " + options.address.text() +
                                           " does not speak this program's protocol");
  }
  std::vector<RankPlace> places;
  for (size_t rank = 0; rank < ranks; ++rank) {
    places.push_back(place_of(welcome.parts[1 + 2 * rank], welcome.parts[2 + 2 * rank]));
  }
  // Before the memory is fetched, so that whoever starts finds all the others.
  auto survivors = TANDEM_TRY(listen_for_survivors(welcome.parts[0], options.rank));
  auto memory = fetch_memory(welcome.parts[0], options.heap_bytes * ranks, patience);
  if (!memory.ok()) {
    // If the meeting failed for another reason, rank 0 is about to say so.
    TANDEM_TRY(next_answer(options, connection, steady_clock::now() + kRefuseTimeout));
    return make_error(
        Code::kFailedPrecondition,
        fmt::format("{} cannot reach the memory of {}: {}; all ranks of a group must run on one "
                    "host",
                    hello.name(), Hello{.place = places[0]}.name(), memory.error().what));
  }
  Meeting meeting{.places = std::move(places),
                  .memory = std::move(*memory),
                  .key = welcome.parts[0],
                  .survivors = std::move(survivors)};
  meeting.connections.resize(ranks);
  meeting.connections[0].emplace(std::move(connection));
  return meeting;
}

}  // namespace

Result<Meeting> meet(const RendezvousOptions& options) {
  spdlog::info("comm_rank_meets rank={} ranks_count={} address={}", options.rank,
               options.ranks_count, options.address.text());
  auto meeting = options.rank == 0 ? meet_as_host(options) : meet_as_guest(options);
  if (meeting.ok()) spdlog::info("comm_rank_met rank={}", options.rank);
  return meeting;
}

}  // namespace tandem::comm
