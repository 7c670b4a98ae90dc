// Goal: no bytes that a stranger or a broken peer sends crash, hang or grow what reads them, and
// what is understood means the same when it is written again.
// Method: the input is a stream of bytes in a socket, written in pieces of its first byte's length;
// every message that arrives is read as rank 0 reads a hello. Start it with fuzz_corpus/message.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "comm/connection.h"
#include "comm/hello.h"

namespace {

using namespace tandem;

constexpr size_t kInputMax = 16 * 1024;  // below what a socket holds, so that no send waits
constexpr size_t kTextMax = 256 * 1024;

void expect(bool holds) {
  if (!holds) std::abort();
}

void read(const comm::Message& message) {
  const auto again = comm::decode(std::string_view(comm::encode(message)).substr(4));
  expect(again.ok() && again->kind == message.kind && again->rank == message.rank &&
         again->parts == message.parts);
  const auto hello = comm::hello_of(message);
  if (!hello.has_value()) return;
  expect(hello->rank >= 0 && hello->place.host.size() < 256);
  const comm::Hello own{.place = {"here", 1}, .fields = {{"protocol version", "1"}}};
  const std::string differ = comm::differences(own, *hello);
  expect(differ.size() < kTextMax);
  expect(std::ranges::all_of(differ, [](char c) { return c >= ' ' && c <= '~'; }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > kInputMax) return 0;
  const size_t piece = size_t{data[0]} + 1;
  std::span rest(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  auto [near, far] = io::Socket::make_pair().value();
  comm::Connection connection(std::move(far));
  while (!rest.empty()) {
    const auto next = rest.first(std::min(piece, rest.size()));
    rest = rest.subspan(next.size());
    expect(near.send(next, std::chrono::steady_clock::now() + std::chrono::seconds(1)).ok());
    while (true) {
      auto message = connection.take();
      if (!message.ok()) return 0;
      if (!message->has_value()) break;
      read(**message);
    }
  }
  return 0;
}
