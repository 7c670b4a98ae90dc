#include "cpu/cpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "cpu/amx.h"
#include "cpu/host_cores.h"
#include "cpu/host_memory.h"
#include "cpu/large_memory.h"

namespace tandem::cpu {

const char* matrix_path_name(MatrixPath path) {
  switch (path) {
    case MatrixPath::kPortable:
      return "portable";
    case MatrixPath::kAvx512Bf16:
      return "avx512_bf16";
    case MatrixPath::kAmxBf16:
      return "amx_bf16";
  }
  return "?";
}

Result<MatrixPath> parse_matrix_path(std::string_view name) {
  if (name == "auto") return best_matrix_path();
  for (MatrixPath path : {MatrixPath::kPortable, MatrixPath::kAvx512Bf16, MatrixPath::kAmxBf16}) {
    if (name == matrix_path_name(path)) return path;
  }
  return make_error(Code::kInvalidArgument,
                    fmt::format("there is no matrix path '{}': use auto, portable, avx512_bf16 or "
                                "amx_bf16",
                                name));
}

std::vector<MatrixPath> usable_matrix_paths() {
  std::vector<MatrixPath> paths{MatrixPath::kPortable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw")) {
    paths.push_back(MatrixPath::kAvx512Bf16);
  }
  static const bool amx = internal::enable_amx();
  if (amx) paths.push_back(MatrixPath::kAmxBf16);
#endif
  return paths;
}

MatrixPath best_matrix_path() {
  const std::vector<MatrixPath> paths = usable_matrix_paths();
  if (paths.back() != MatrixPath::kAvx512Bf16) return paths.back();
#if defined(__x86_64__)
  // Intel runs one vdpbf16ps in the time of four f32 products, which do the same work in two.
  if (!__builtin_cpu_is("intel")) return MatrixPath::kAvx512Bf16;
#endif
  return MatrixPath::kPortable;
}

Result<std::unique_ptr<CpuDevice>> CpuDevice::create(Options options) {
  if (options.threads_count < 0 || options.threads_count > 1024) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} CPU threads: use 1 to 1024, or 0 for all that can run",
                                  options.threads_count));
  }
  if (options.threads_count == 0) options.threads_count = read_host_cores().usable();
  if (std::ranges::count(usable_matrix_paths(), options.path) == 0) {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("this processor cannot run the {} matrix path; its best is {}",
                    matrix_path_name(options.path), matrix_path_name(best_matrix_path())));
  }
  return std::unique_ptr<CpuDevice>(new CpuDevice(options));
}

std::string CpuDevice::describe() const {
  return fmt::format("cpu ({} threads, {})", options_.threads_count,
                     matrix_path_name(options_.path));
}

Result<Buffer> CpuDevice::allocate(size_t bytes) {
  void* data = allocate_large(bytes);
  if (data == nullptr) {
    return make_error(Code::kResourceExhausted, fmt::format("no memory for {} bytes", bytes));
  }
  bytes_allocated_ += bytes;
  return Buffer(this, data, bytes);
}

void CpuDevice::release(void* data, size_t bytes) {
  std::free(data);
  bytes_allocated_ -= bytes;
}

Result<std::unique_ptr<Stream>> CpuDevice::make_stream() {
  return std::unique_ptr<Stream>(new CpuStream(options_.threads_count, options_.path));
}

Result<std::unique_ptr<Stream>> CpuDevice::make_side_stream() {
  return std::unique_ptr<Stream>(new CpuStream(1, options_.path));
}

size_t CpuDevice::bytes_available() const {
  return read_host_memory().available_bytes();
}

CpuStream::CpuStream(int threads_count, MatrixPath path) : team_(threads_count), path_(path) {}

std::byte* CpuStream::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset(static_cast<std::byte*>(allocate_large(bytes)));
    TANDEM_CHECK(scratch_ != nullptr, "no memory for an op's scratch");
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

CpuStream& cpu_stream(Stream& stream) {
  TANDEM_CHECK(stream.kind() == DeviceKind::kCpu, "a CPU op on another device's stream");
  return static_cast<CpuStream&>(stream);
}

}  // namespace tandem::cpu
