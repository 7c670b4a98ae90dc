#include "apps/model_fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "io/file.h"
#include "kv/hash.h"

namespace tandem::apps {

namespace {

constexpr size_t kConfigBytesMax = size_t{16} << 20;
constexpr size_t kRowsMax = 1000;

class Fingerprint {
 public:
  void add(std::span<const std::byte> bytes) { sum_ = kv::xxh3_hash(bytes, sum_); }
  void add(const std::string& text) { add(std::as_bytes(std::span(text))); }
  std::string text() const { return fmt::format("{:016x}", sum_); }

 private:
  uint64_t sum_ = 0;
};

}  // namespace

Result<std::string> model_fingerprint(const std::filesystem::path& folder,
                                      model::WeightSource& weights) {
  Fingerprint fingerprint;
  fingerprint.add(TANDEM_TRY(io::read_file(folder / "config.json", kConfigBytesMax)));
  std::vector<std::string> names = weights.names();
  std::sort(names.begin(), names.end());
  const size_t step = names.size() / kRowsMax + 1;
  for (size_t i = 0; i < names.size(); ++i) {
    const model::WeightInfo info = TANDEM_TRY(weights.describe(names[i]));
    fingerprint.add(names[i]);
    fingerprint.add(info.dtype_name);
    fingerprint.add(std::as_bytes(std::span(info.shape)));
    // What no kernel reads is refused later, and by its name.
    const bool is_readable = info.dtype && !info.shape.empty() && info.bytes > 0;
    if (i % step != 0 || !is_readable) continue;
    const int64_t row = info.shape[0] / 2;
    fingerprint.add(TANDEM_TRY(weights.slice(names[i], {.rows = {row, row + 1}})).bytes);
    weights.release(names[i]);
  }
  return fingerprint.text();
}

}  // namespace tandem::apps
