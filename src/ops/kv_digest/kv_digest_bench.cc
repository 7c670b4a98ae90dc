// Goal: bytes per second of kv_digest, the price of the proof that a hand-off adds to either side.
// Method: K of 16,384 tokens, 4 heads of 128 in bf16, pages of 16 hashed in slices of 16, 32 and
// 256 tokens; 16 MiB a call, so that it comes from memory.
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "cpu/cpu_device.h"
#include "ops/kv_digest/kv_digest.h"

namespace tandem::ops {
namespace {

void digest(benchmark::State& state) {
  constexpr int64_t kTokens = 16384;
  constexpr int64_t kPageTokens = 16;
  const auto device =
      cpu::CpuDevice::create({.threads_count = static_cast<int>(state.range(1))}).value();
  const auto stream = device->make_stream().value();
  std::vector<uint16_t> bytes(kTokens * 4 * 128);
  std::iota(bytes.begin(), bytes.end(), 1);
  std::vector<int32_t> pages(kTokens / kPageTokens);
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<uint64_t> digests(static_cast<size_t>(kTokens / state.range(0)));
  const KvDigestArgs args{
      .pool = {.data = bytes.data(),
               .dtype = DType::kBF16,
               .rank = 4,
               .shape = {kTokens / kPageTokens, 4, kPageTokens, 128}},
      .pages = TensorView<const int32_t, 1>::make(pages.data(), {kTokens / kPageTokens}),
      .heads_count = 4,
      .end_token = kTokens,
      .slice_tokens = state.range(0),
      .digests =
          TensorView<uint64_t, 1>::make(digests.data(), {static_cast<int64_t>(digests.size())})};
  for (auto _ : state) {
    if (!kv_digest(*stream, args).ok()) state.SkipWithError("kv_digest failed");
    benchmark::DoNotOptimize(digests.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size() * 2));
}
BENCHMARK(digest)
    ->ArgsProduct({{16, 32, 256}, {1, 2}})
    ->ArgNames({"slice", "threads"})
    ->UseRealTime();

}  // namespace
}  // namespace tandem::ops
