#include "comm/rendezvous.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "comm/regroup.h"
#include "io/host.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kMagic = "tandem rendezvous";
constexpr const char* kVersion = "1";
constexpr milliseconds kHelloTimeout{2000};  // a stranger may hold up the meeting this long
constexpr milliseconds kLook{100};           // between two looks at who is still there
constexpr size_t kHelloParts = 3;            // before the names and values

RankPlace place_here() {
  return {io::host_name(), io::process_id()};
}

RankPlace place_of(const std::string& host, const std::string& process_id) {
  RankPlace place{host.substr(0, 255), 0};
  std::from_chars(process_id.data(), process_id.data() + process_id.size(), place.process_id);
  return place;
}

std::string describe(int rank, const RankPlace& place) {
  return fmt::format("rank {} of host {} (process {})", rank, place.host, place.process_id);
}

/// Everything that must be equal, as alternating names and values.
std::vector<std::string> fields(const RendezvousOptions& options) {
  std::vector<std::string> parts = {"protocol version", kVersion,
                                    "number of ranks",  std::to_string(options.ranks_count),
                                    "heap bytes",       std::to_string(options.heap_bytes)};
  for (const auto& [name, value] : options.settings) {
    parts.push_back(name);
    parts.push_back(value);
  }
  return parts;
}

std::string value_of(const std::vector<std::string>& parts, const std::string& name) {
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    if (parts[i] == name) return parts[i + 1];
  }
  return "nothing";
}

/// Every field in which the two differ, with both values; empty when they agree.
std::string differences(const std::vector<std::string>& mine, const std::string& my_name,
                        const std::vector<std::string>& theirs, const std::string& their_name) {
  std::vector<std::string> names;
  for (const auto& parts : {mine, theirs}) {
    for (size_t i = 0; i + 1 < parts.size(); i += 2) {
      if (std::find(names.begin(), names.end(), parts[i]) == names.end()) names.push_back(parts[i]);
    }
  }
  std::string text;
  for (const std::string& name : names) {
    const std::string my_value = value_of(mine, name);
    const std::string their_value = value_of(theirs, name);
    if (my_value == their_value) continue;
    text += fmt::format("{}{}: {} has {}, {} has {}", text.empty() ? "" : "; ", name, their_name,
                        their_value, my_name, my_value);
  }
  return text;
}

/// Rank 0's side. Owns the connections until all have met.
class Host {
 public:
  Host(const RendezvousOptions& options, io::Listener listener, io::Listener local, Meeting meeting)
      : options_(options),
        deadline_(steady_clock::now() + options.start_timeout),
        listener_(std::move(listener)),
        local_(std::move(local)),
        meeting_(std::move(meeting)) {
    meeting_.connections.resize(static_cast<size_t>(options.ranks_count));
    meeting_.places.resize(static_cast<size_t>(options.ranks_count));
    meeting_.places[0] = place_here();
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
              steady_clock::now() + kHelloTimeout)
        .ok();
  }

  Result<void> gather() {
    while (!missing().empty()) {
      TANDEM_TRY(check_joined());
      if (steady_clock::now() >= deadline_) return nobody_came();
      auto socket = TANDEM_TRY(listener_.accept(steady_clock::now() + kLook));
      if (socket.has_value()) TANDEM_TRY(join(Connection(std::move(*socket))));
    }
    return {};
  }

  Result<void> join(Connection connection) {
    const auto hello = connection.receive(steady_clock::now() + kHelloTimeout);
    if (!hello.ok() || hello->kind != Message::Kind::kHello || hello->parts.size() < kHelloParts ||
        hello->parts[0] != kMagic) {
      spdlog::warn("comm_stranger_refused address={} reason=\"no rank of ours\"",
                   options_.address.text());
      return {};
    }
    const RankPlace place = place_of(hello->parts[1], hello->parts[2]);
    const auto rank = static_cast<int>(std::min<uint32_t>(hello->rank, 1u << 20));
    const std::string name = describe(rank, place);
    const std::string differ =
        differences(fields(options_), describe(0, meeting_.places[0]),
                    {hello->parts.begin() + kHelloParts, hello->parts.end()}, name);
    std::string why;
    if (!differ.empty()) {
      why = "the ranks were started differently: " + differ + "; give all the same flags";
    } else if (rank == 0 || rank >= options_.ranks_count) {
      why = fmt::format("{} is not one of the ranks 1 to {}; check --node-rank", name,
                        options_.ranks_count - 1);
    } else if (meeting_.connections[static_cast<size_t>(rank)]) {
      why = fmt::format("two processes claim one rank: {} and {}; check --node-rank", name,
                        describe(rank, meeting_.places[static_cast<size_t>(rank)]));
    }
    if (!why.empty()) {
      refuse(connection, why, rank_at_fault_);
      return make_error(Code::kInvalidArgument, why);
    }
    meeting_.places[static_cast<size_t>(rank)] = place;
    meeting_.connections[static_cast<size_t>(rank)].emplace(std::move(connection));
    return {};
  }

  /// The ranks that have not come: "1, 3"; empty when all have.
  std::string missing() const {
    std::string ranks;
    for (int rank = 1; rank < options_.ranks_count; ++rank) {
      if (meeting_.connections[static_cast<size_t>(rank)]) continue;
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    return ranks;
  }

  Error nobody_came() const {
    return make_error(
        Code::kDeadlineExceeded,
        fmt::format("{} ms after the start these ranks have not come to {}: {}; start them with "
                    "this address, or look into their logs",
                    options_.start_timeout.count(), options_.address.text(), missing()));
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
                      describe(rank, meeting_.places[static_cast<size_t>(rank)]) +
                          " ended while the ranks were meeting; look into its log");
  }

  Result<void> welcome() {
    Message message{.kind = Message::Kind::kWelcome, .parts = {meeting_.key}};
    for (const RankPlace& place : meeting_.places) {
      message.parts.push_back(place.host);
      message.parts.push_back(std::to_string(place.process_id));
    }
    for (int rank = 1; rank < options_.ranks_count; ++rank) {
      auto& connection = meeting_.connections[static_cast<size_t>(rank)];
      if (!connection->send(message, deadline_).ok()) return ended(rank);
    }
    return {};
  }

  Result<void> hand_over() {
    for (int handed = 1; handed < options_.ranks_count;) {
      TANDEM_TRY(check_joined());
      if (steady_clock::now() >= deadline_) {
        return make_error(Code::kDeadlineExceeded,
                          "not every rank has fetched the shared memory in time; all ranks of a "
                          "group must run on one host");
      }
      auto socket = TANDEM_TRY(local_.accept(steady_clock::now() + kLook));
      if (socket.has_value() && socket->send_descriptor(meeting_.memory.descriptor()).ok()) {
        ++handed;
      }
    }
    return {};
  }

  const RendezvousOptions& options_;
  const io::Deadline deadline_;
  io::Listener listener_;
  io::Listener local_;
  Meeting meeting_;
  int rank_at_fault_ = 0;  // a rank that died; otherwise rank 0, which refuses
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
  while (true) {
    auto socket = io::Socket::connect_tcp(options.address, deadline);
    if (socket.ok()) return Connection(std::move(*socket));
    if (steady_clock::now() + kLook >= deadline) {
      return make_error(
          Code::kDeadlineExceeded,
          fmt::format("rank {} of host {} found no rank 0 within {} ms: {}; start rank 0 there",
                      options.rank, io::host_name(), options.start_timeout.count(),
                      socket.error().what));
    }
    std::this_thread::sleep_for(kLook);
  }
}

/// What rank 0 says next; its refusal or its end is an error.
Result<Message> next_answer(const RendezvousOptions& options, Connection& connection,
                            io::Deadline deadline) {
  auto answer = connection.receive(deadline);
  if (!answer.ok()) {
    return make_error(Code::kUnavailable,
                      fmt::format("rank 0 at {} ended or fell silent while the ranks were meeting "
                                  "({}); look into its log",
                                  options.address.text(), answer.error().what));
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
  Message hello{.kind = Message::Kind::kHello, .rank = static_cast<uint32_t>(options.rank)};
  const RankPlace here = place_here();
  hello.parts = {kMagic, here.host, std::to_string(here.process_id)};
  for (std::string& part : fields(options)) hello.parts.push_back(std::move(part));
  // If rank 0 is gone again, reading its answer says so.
  (void)connection.send(hello, deadline).ok();

  // Rank 0 reports who is missing; it gets a little longer than it gives itself.
  const io::Deadline patience = deadline + 2 * kHelloTimeout;
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
    TANDEM_TRY(next_answer(options, connection, steady_clock::now() + kHelloTimeout));
    return make_error(
        Code::kFailedPrecondition,
        fmt::format("{} cannot reach the memory of {}: {}; all ranks of a group must run on one "
                    "host",
                    describe(options.rank, here), describe(0, places[0]), memory.error().what));
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
  return options.rank == 0 ? meet_as_host(options) : meet_as_guest(options);
}

}  // namespace tandem::comm
