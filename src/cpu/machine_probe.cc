// The measurements behind machine_probe.h: a streaming sum and chains of products in registers.
#include "cpu/machine_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "cpu/large_memory.h"

#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/machine_probe.cc"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sum of all 32-bit words; four chains, so that loads and not additions set the pace.
uint32_t SumWords(const std::byte* data, size_t bytes) {
  const hn::ScalableTag<uint32_t> d;
  const size_t lanes = hn::Lanes(d);
  const auto* p = reinterpret_cast<const uint32_t*>(data);
  const size_t words = bytes / sizeof(uint32_t);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t i = 0; i + 4 * lanes <= words; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, p + i));
    b = hn::Add(b, hn::LoadU(d, p + i + lanes));
    c = hn::Add(c, hn::LoadU(d, p + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, p + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

/// `rounds` products in each of 12 independent chains: more than latency times units, less than
/// registers. Returns the operations done; `sink` keeps the compiler from dropping them.
double ChainFlops(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  constexpr int kChains = 12;
  hn::Vec<decltype(d)> sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = hn::Set(d, static_cast<float>(c));
  const auto x = hn::Set(d, 0.999f);
  const auto y = hn::Set(d, 0.001f);
  for (int64_t i = 0; i < rounds; ++i) {
    for (int c = 0; c < kChains; ++c) sum[c] = hn::MulAdd(sum[c], x, y);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = hn::Add(sum[0], sum[c]);
  *sink = hn::GetLane(hn::SumOfLanes(d, sum[0]));
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

HWY_EXPORT(SumWords);
HWY_EXPORT(ChainFlops);

double chain_flops_portable(int64_t rounds, float* sink) {
  return HWY_DYNAMIC_DISPATCH(ChainFlops)(rounds, sink);
}

constexpr size_t kChunkBytes = 1 << 20;  // one worker's turn

double flops_per_second(ThreadTeam& team, double (*chains)(int64_t rounds, float* sink)) {
  constexpr int64_t kRounds = 1 << 18;  // milliseconds
  std::atomic<double> flops{0.0};
  std::atomic<float> sink{0.0f};
  const auto start = Clock::now();
  team.parallel_for(team.threads_count() * int64_t{8}, [&](int64_t, int) {
    float sum = 0;
    flops += chains(kRounds, &sum);
    sink += sum;
  });
  const double seconds = seconds_since(start);
  TANDEM_CHECK(std::isfinite(sink), "the probe's chains must converge");
  return flops / seconds;
}

}  // namespace

ReadProbe::ReadProbe(size_t bytes)
    : bytes_((bytes + kChunkBytes - 1) / kChunkBytes * kChunkBytes),
      data_(static_cast<std::byte*>(allocate_large(bytes_))) {
  TANDEM_CHECK(data_ != nullptr, "no memory for the read probe");
  std::memset(data_.get(), 1, bytes_);
}

double ReadProbe::bytes_per_second(ThreadTeam& team) {
  std::atomic<uint32_t> sink{0};
  const auto start = Clock::now();
  team.parallel_for(static_cast<int64_t>(bytes_ / kChunkBytes), [&](int64_t i, int) {
    sink += HWY_DYNAMIC_DISPATCH(SumWords)(data_.get() + static_cast<size_t>(i) * kChunkBytes,
                                           kChunkBytes);
  });
  const double seconds = seconds_since(start);
  TANDEM_CHECK(sink == static_cast<uint32_t>(bytes_ / 4 * 0x01010101u), "the probe misread");
  return static_cast<double>(bytes_) / seconds;
}

double matrix_flops_per_second(ThreadTeam& team, DType dtype) {
  double best = flops_per_second(team, chain_flops_portable);
#if defined(__x86_64__)
  if (dtype != DType::kBF16) return best;
  for (MatrixPath path : usable_matrix_paths()) {
    if (path == MatrixPath::kAvx512Bf16) {
      best = std::max(best, flops_per_second(team, internal::chain_flops_avx512_bf16));
    }
    if (path == MatrixPath::kAmxBf16) {
      best = std::max(best, flops_per_second(team, internal::chain_flops_amx_bf16));
    }
  }
#endif
  return best;
}

}  // namespace tandem::cpu
#endif
