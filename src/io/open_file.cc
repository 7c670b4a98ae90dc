#include "io/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace tandem::io {
namespace {

Code code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return Code::kResourceExhausted;
    default:
      return Code::kFailedPrecondition;
  }
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (value_ >= 0) ::close(value_);
}

Error system_error(const char* verb, const std::filesystem::path& path, int error_number) {
  return make_error(code_of(error_number),
                    std::string("cannot ") + verb + " " + path.string() + ": " +
                        std::error_code(error_number, std::generic_category()).message());
}

Result<OpenFile> open_file(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe without a writer would hang. It means nothing for regular files.
  FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) return system_error("open", path, errno);
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) return system_error("read", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return make_error(Code::kInvalidArgument,
                      path.string() + " is " + (S_ISDIR(status.st_mode) ? "a folder" : "a device") +
                          ", not a regular file");
  }
  return OpenFile{std::move(descriptor), static_cast<size_t>(status.st_size)};
}

}  // namespace tandem::io
