#include <fmt/format.h>

#include <thread>

#include "comm/missing_log.h"
#include "comm/regroup.h"
#include "comm/rendezvous_sides.h"
#include "io/host.h"

namespace tandem::comm {
namespace {

using std::chrono::steady_clock;

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

}  // namespace

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

}  // namespace tandem::comm
