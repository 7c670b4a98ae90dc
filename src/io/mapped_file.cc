#include "io/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/check.h"
#include "io/open_file.h"

namespace tandem::io {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const OpenFile file = TANDEM_TRY(open_file(path));
  if (file.bytes == 0) return MappedFile({});  // the kernel refuses to map nothing
  void* address = ::mmap(nullptr, file.bytes, PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (address == MAP_FAILED) return system_error("map", path, errno);
  MappedFile mapped({static_cast<const std::byte*>(address), file.bytes});

  // A file that shrank meanwhile would end the process with SIGBUS at the first read past its end.
  struct stat status{};
  if (::fstat(file.descriptor.get(), &status) != 0) return system_error("read", path, errno);
  if (static_cast<size_t>(status.st_size) != file.bytes) {
    return make_error(Code::kUnavailable, path.string() + " changed its size from " +
                                              std::to_string(file.bytes) + " to " +
                                              std::to_string(status.st_size) +
                                              " bytes while it was opened; wait for the copy or "
                                              "download to end");
  }
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::prefetch(size_t offset, size_t length) const {
  advise(offset, length, MADV_WILLNEED);
}

void MappedFile::drop(size_t offset, size_t length) const {
  advise(offset, length, MADV_DONTNEED);
}

void MappedFile::advise(size_t offset, size_t length, int advice) const {
  TANDEM_CHECK(offset <= bytes_.size(), "range starts past the end of the file");
  TANDEM_CHECK(length <= bytes_.size() - offset, "range ends past the end of the file");
  if (length == 0) return;
  const size_t page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page_bytes * page_bytes;
  ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, offset + length - begin, advice);
}

}  // namespace tandem::io
