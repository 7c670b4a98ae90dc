#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "cpu/cpu_device.h"
#include "device/dtype.h"

/// What this machine can do at best, measured in the run that wants to know: the denominators of
/// every share that a benchmark prints. Other processes slow these down as they slow the work.
namespace tandem::cpu {

/// Bytes per second at which the team reads `bytes` of memory from front to back. Choose more
/// than the last-level cache holds, or the answer is the cache's.
class ReadProbe {
 public:
  /// Allocates the memory and writes it once.
  explicit ReadProbe(size_t bytes);
  double bytes_per_second(ThreadTeam& team);

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

/// Floating point operations per second (a multiply and an add are two) by all workers of the team,
/// on registers only, of the fastest instruction that this machine multiplies `dtype` with, be it
/// the one our kernels use or not.
double matrix_flops_per_second(ThreadTeam& team, DType dtype);

namespace internal {
/// `rounds` vdpbf16ps (tdpbf16ps) in each of several chains: the operations done; `sink` gets a
/// sum that depends on them.
double chain_flops_avx512_bf16(int64_t rounds, float* sink);
double chain_flops_amx_bf16(int64_t rounds, float* sink);
}  // namespace internal

}  // namespace tandem::cpu
