#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/thread_team.h"
#include "device/device.h"

namespace tandem::cpu {

/// Which matrix kernels run. One per process and never chosen by shape, so that one row and many
/// rows go the same way.
enum class MatrixPath {
  kPortable,    ///< Highway vectors: AVX2, AVX-512, NEON, ...
  kAvx512Bf16,  ///< vdpbf16ps
  kAmxBf16,     ///< tdpbf16ps
};

const char* matrix_path_name(MatrixPath path);
/// The path of a name, "auto" for the fastest. kInvalidArgument lists the names.
Result<MatrixPath> parse_matrix_path(std::string_view name);
/// The paths that this machine can run, never empty.
std::vector<MatrixPath> usable_matrix_paths();
/// The fastest of them. Decided by the kind of processor alone: equal machines give equal bits.
MatrixPath best_matrix_path();

/// Memory and streams of the host processor for one rank.
class CpuDevice final : public Device {
 public:
  struct Options {
    int threads_count = 0;  ///< workers of a stream, the caller included; 0: HostCores::usable()
    MatrixPath path = best_matrix_path();
  };
  /// kInvalidArgument when this machine cannot run `path`.
  static Result<std::unique_ptr<CpuDevice>> create(Options options);

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string describe() const override;
  /// Bytes of the buffers that live.
  size_t bytes_allocated() const { return bytes_allocated_; }
  Result<Buffer> allocate(size_t bytes) override;
  Result<std::unique_ptr<Stream>> make_stream() override;
  Result<std::unique_ptr<Stream>> make_side_stream() override;
  size_t bytes_available() const override;
  MatrixPath path() const { return options_.path; }
  int threads_count() const { return options_.threads_count; }

 protected:
  void release(void* data, size_t bytes) override;

 private:
  explicit CpuDevice(Options options) : options_(options) {}
  Options options_;
  std::atomic<size_t> bytes_allocated_ = 0;
};

/// Runs ops at once on the calling thread and its team. Owns the team and a scratch arena that
/// grows to the largest op seen (a warm-up step) and then stays: steps allocate nothing.
class CpuStream final : public Stream {
 public:
  CpuStream(int threads_count, MatrixPath path);
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  ThreadTeam& team() { return team_; }
  MatrixPath path() const { return path_; }

  /// Scratch for the running op, 64-byte aligned, undefined contents; valid until the next call.
  std::byte* scratch(size_t bytes);

 private:
  ThreadTeam team_;
  MatrixPath path_;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> scratch_;
  size_t scratch_bytes_ = 0;
};

/// The stream of a CPU op; a stream of another kind is a defect.
CpuStream& cpu_stream(Stream& stream);

}  // namespace tandem::cpu
