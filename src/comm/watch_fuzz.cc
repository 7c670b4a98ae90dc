// Goal: no bytes of broken peers crash or hang the watch of a rank, and one that speaks for another
// rank, or for none, is not believed.
// Method: a watch of one of three ranks; the first byte says whose, each later pair (peer, length)
// how the bytes that follow are dealt out to its peers. What may be known afterwards: deaths of
// peers, never of the rank itself, unless rank 0 said so. Start it with fuzz_corpus/watch.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>

#include "comm/watch.h"

namespace {

using namespace tandem;

constexpr size_t kRanks = 3;
constexpr size_t kInputMax = 16 * 1024;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > kInputMax) return 0;
  spdlog::set_level(spdlog::level::off);
  const size_t rank = data[0] % kRanks;
  comm::GroupHealth health({{"a", 1}, {"b", 2}, {"c", 3}});
  std::vector<std::optional<comm::Connection>> connections(kRanks);
  std::vector<std::optional<io::Socket>> peers(kRanks);
  for (size_t peer = 0; peer < kRanks; ++peer) {
    // Rank 0 is connected to all others, each of them to rank 0 only.
    if (peer == rank || (rank != 0 && peer != 0)) continue;
    auto [near, far] = io::Socket::make_pair().value();
    connections[peer].emplace(std::move(near));
    peers[peer].emplace(std::move(far));
  }
  auto watch = comm::Watch::start(static_cast<int>(rank), std::move(connections), health).value();
  for (size_t at = 1; at + 2 <= size;) {
    auto& peer = peers[data[at] % kRanks];
    const size_t length = std::min<size_t>(data[at + 1], size - at - 2);
    const std::span bytes(reinterpret_cast<const std::byte*>(data + at + 2), length);
    at += 2 + length;
    if (!peer) continue;
    // The watch may have ended the connection already.
    (void)peer->send(bytes, std::chrono::steady_clock::now() + std::chrono::seconds(1)).ok();
  }
  for (auto& peer : peers) peer.reset();
  watch.reset();
  const auto failure = health.failure();
  if (rank == 0 && failure && failure->what.starts_with("rank 0 ")) std::abort();
  return 0;
}
