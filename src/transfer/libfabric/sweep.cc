#include "transfer/libfabric/sweep.h"

#include <charconv>
#include <string>
#include <system_error>

#include "io/process.h"

namespace tandem::transfer {
namespace {

/// The first number of "12:0:1"; 0 for a name that is not three such numbers.
int process_of(const std::string& name) {
  int numbers[3] = {};
  const char* at = name.data();
  const char* end = at + name.size();
  for (int i = 0; i < 3; ++i) {
    if (i > 0 && (at == end || *at++ != ':')) return 0;
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc() || numbers[i] < 0) return 0;
    at = next;
  }
  return at == end ? numbers[0] : 0;
}

}  // namespace

int sweep_shared_memory(const std::filesystem::path& folder) {
  int count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const int process = process_of(entry->path().filename().string());
    if (process == 0 || io::process_exists(process)) continue;
    std::error_code ignored;  // another process may sweep too
    count += std::filesystem::remove(entry->path(), ignored) ? 1 : 0;
  }
  return count;
}

}  // namespace tandem::transfer
