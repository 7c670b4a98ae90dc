// Goal: what the engine itself costs per slice. 32 KiB pages at 10 GB/s are one slice in 3.3 us, so
// that this must stay well below.
// Method: rails that move nothing; a transfer of 1024 pages from submission to its end.
#include <benchmark/benchmark.h>

#include <numeric>

#include "transfer/testing/instant_rail.h"
#include "transfer/transfer_engine.h"

namespace tandem::transfer {
namespace {

constexpr uint64_t kPages = 1024;
constexpr uint64_t kPageBytes = 32 * 1024;

void pages(benchmark::State& state) {
  std::vector<std::unique_ptr<Rail>> rails;
  for (int64_t i = 0; i < state.range(0); ++i) rails.push_back(std::make_unique<InstantRail>());
  auto engine =
      TransferEngine::create({}, std::move(rails), std::chrono::steady_clock::now, {}).value();
  // No byte is ever touched, so that an address is enough.
  const MemoryBlock memory{.data = engine.get(), .bytes = kPages * kPageBytes};
  const MemoryId source = engine->add_memory(memory).value();
  const PeerId peer = engine->add_peer("peer", engine->address()).value();
  const TargetId target =
      engine->add_target(peer, engine->grant(source).value().descriptor).value();
  std::vector<uint32_t> numbers(kPages);
  std::iota(numbers.begin(), numbers.end(), 0);
  const PageList list{.pages = numbers, .stride_bytes = kPageBytes};
  for (auto _ : state) {
    bool is_over = false;
    const TransferId transfer = engine
                                    ->begin({.arrival = Arrival{1, 1},
                                             .on_end = [&](const TransferEnd&) { is_over = true; }})
                                    .value();
    engine->write_pages(transfer, {source, target}, list, list, kPageBytes).value();
    engine->finish(transfer).value();
    while (!is_over) engine->progress();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kPages));
}
BENCHMARK(pages)->Arg(1)->Arg(2)->Arg(4)->ArgName("rails");

}  // namespace
}  // namespace tandem::transfer
