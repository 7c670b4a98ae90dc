// Contract   out = x / sqrt(mean(x^2) + eps) * weight per row, see rms_norm.h
// Shapes     any rows and columns
// Work       reads x twice (the second time from L1), writes out
// Roof       memory
// Plan       a task per row
// Measured   not alone yet; its part of a step: tandem bench engine --ops
// Reference  rms_norm_test.cc
#include <cmath>

#include "cpu/cpu_device.h"
#include "cpu/vector.h"
#include "ops/rms_norm/rms_norm.h"

namespace tandem::ops {

Result<void> rms_norm_cpu(Stream& stream, const RmsNormArgs& args) {
  const int64_t n = args.x.shape[1];
  cpu::cpu_stream(stream).team().parallel_for(args.x.shape[0], [&](int64_t t, int) {
    const float mean = cpu::sum_of_squares(args.x.row(t), n) / static_cast<float>(n);
    cpu::scale_row(args.out.row(t), args.x.row(t), 1.0f / std::sqrt(mean + args.eps),
                   args.weight.data, n);
  });
  return {};
}

}  // namespace tandem::ops
