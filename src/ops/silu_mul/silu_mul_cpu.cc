// Contract   out = silu(gate) * up, see silu_mul.h
// Shapes     any rows, gate and up side by side
// Work       one exponential and one division per element
// Roof       the exponential; memory when the row has left L2
// Plan       a task per row
// Measured   not alone yet; its part of a step: tandem bench engine --ops
// Reference  silu_mul_test.cc
#include "cpu/cpu_device.h"
#include "cpu/vector.h"
#include "ops/silu_mul/silu_mul.h"

namespace tandem::ops {

Result<void> silu_mul_cpu(Stream& stream, const SiluMulArgs& args) {
  const int64_t width = args.out.shape[1];
  cpu::cpu_stream(stream).team().parallel_for(args.out.shape[0], [&](int64_t r, int) {
    const float* gate = args.gate_up.row(r);
    cpu::silu_mul(args.out.row(r), gate, gate + width, width);
  });
  return {};
}

}  // namespace tandem::ops
