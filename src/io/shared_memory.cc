#include "io/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "io/host.h"

namespace tandem::io {
namespace {

Error memory_error(const char* verb, size_t bytes, int error_number) {
  return make_error(Code::kResourceExhausted,
                    std::string("cannot ") + verb + " " + std::to_string(bytes) +
                        " bytes of shared memory: " +
                        std::error_code(error_number, std::generic_category()).message() +
                        "; ask for less, or raise the memory limit of this host or container");
}

}  // namespace

Result<SharedMemory> SharedMemory::create(size_t bytes) {
  // Asked first: reserving more than there is would have the system end processes to find it.
  if (bytes > memory_available_bytes()) return memory_error("reserve", bytes, ENOMEM);
  FileDescriptor descriptor(::memfd_create("tandem", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (descriptor.get() < 0) return memory_error("make", bytes, errno);
  // Reserved now: a page that cannot be had later would end the process that touches it.
  const int error = ::posix_fallocate(descriptor.get(), 0, static_cast<off_t>(bytes));
  if (error != 0) return memory_error("reserve", bytes, error);
  // For the same reason nobody may cut it while others have it mapped.
  if (::fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return memory_error("seal", bytes, errno);
  }
  return map(std::move(descriptor), bytes);
}

Result<SharedMemory> SharedMemory::map(FileDescriptor descriptor, size_t bytes) {
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) return memory_error("look at", bytes, errno);
  if (static_cast<size_t>(status.st_size) != bytes) {
    return make_error(Code::kDataLoss, "shared memory of " + std::to_string(status.st_size) +
                                           " bytes instead of " + std::to_string(bytes));
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) return memory_error("map", bytes, errno);
  return SharedMemory(std::move(descriptor), {static_cast<std::byte*>(data), bytes});
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace tandem::io
