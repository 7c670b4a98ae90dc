#include "apps/device_flags.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "cpu/host_cores.h"

namespace tandem::apps {

void add_device_flags(CLI::App& verb, DeviceOptions& options) {
  verb.add_option("--dtype", options.dtype, "weights, KV and products: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}));
  verb.add_option("--threads", options.threads_count,
                  "CPU threads; 0: as many as this process may run at once");
  verb.add_option("--matrix-path", options.matrix_path,
                  "matrix instructions: auto, portable, avx512_bf16 or amx_bf16")
      ->check(CLI::IsMember({"auto", "portable", "avx512_bf16", "amx_bf16"}));
}

Result<std::unique_ptr<cpu::CpuDevice>> make_device(const DeviceOptions& options) {
  const cpu::MatrixPath path = TANDEM_TRY(cpu::parse_matrix_path(options.matrix_path));
  const int cores = cpu::read_host_cores().allowed;
  if (options.threads_count > cores) {
    spdlog::warn("threads_lowered wanted={} used={} reason=\"this process may run on {} cores\"",
                 options.threads_count, cores, cores);
  }
  return cpu::CpuDevice::create(
      {.threads_count = std::min(options.threads_count, cores), .path = path});
}

}  // namespace tandem::apps
