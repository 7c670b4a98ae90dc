#include "comm/rendezvous.h"

#include <spdlog/spdlog.h>

#include "comm/rendezvous_sides.h"

namespace tandem::comm {
namespace {

constexpr const char* kVersion = "1";

}  // namespace

Hello make_hello(const RendezvousOptions& options) {
  Hello hello{.rank = options.rank,
              .place = place_here(),
              .fields = {{"protocol version", kVersion},
                         {"number of ranks", std::to_string(options.ranks_count)},
                         {"heap bytes", std::to_string(options.heap_bytes)}}};
  hello.fields.insert(hello.fields.end(), options.settings.begin(), options.settings.end());
  return hello;
}

std::string local_name(const std::string& key) {
  return "tandem-" + key;
}

Result<Meeting> meet(const RendezvousOptions& options) {
  spdlog::info("comm_rank_meets rank={} ranks_count={} address={}", options.rank,
               options.ranks_count, options.address.text());
  auto meeting = options.rank == 0 ? meet_as_host(options) : meet_as_guest(options);
  if (meeting.ok()) spdlog::info("comm_rank_met rank={}", options.rank);
  return meeting;
}

}  // namespace tandem::comm
