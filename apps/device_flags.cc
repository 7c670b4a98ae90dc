#include "apps/device_flags.h"

namespace tandem::apps {

void add_device_flags(CLI::App& verb, DeviceOptions& options) {
  verb.add_option("--dtype", options.dtype, "weights, KV and products: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}));
  verb.add_option("--threads", options.threads_count, "CPU threads; 0: all cores");
  verb.add_option("--matrix-path", options.matrix_path,
                  "matrix instructions: auto, portable, avx512_bf16 or amx_bf16");
}

Result<std::unique_ptr<cpu::CpuDevice>> make_device(const DeviceOptions& options) {
  return cpu::CpuDevice::create({.threads_count = options.threads_count,
                                 .path = TANDEM_TRY(cpu::parse_matrix_path(options.matrix_path))});
}

}  // namespace tandem::apps
