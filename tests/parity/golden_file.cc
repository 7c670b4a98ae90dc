#include "tests/parity/golden_file.h"

#include <cstring>
#include <utility>

namespace tandem::parity {

Result<GoldenFile> GoldenFile::open(const std::filesystem::path& path) {
  io::MappedFile file = TANDEM_TRY(io::MappedFile::open(path));
  model::SafetensorsHeader header = TANDEM_TRY(model::parse_safetensors_header(file.bytes()));
  return GoldenFile(std::move(file), std::move(header));
}

template <typename T>
std::vector<T> GoldenFile::values(const std::string& name, const char* dtype) const {
  for (const model::SafetensorsTensor& tensor : header_.tensors) {
    if (tensor.name != name) continue;
    TANDEM_CHECK(tensor.dtype.name == std::string(dtype), name + " has another dtype");
    std::vector<T> result(tensor.bytes / sizeof(T));
    std::memcpy(result.data(), file_.bytes().data() + tensor.offset, tensor.bytes);
    return result;
  }
  TANDEM_CHECK(false, "the golden file has no " + name + "; make it anew: ./x golden parity");
  return {};
}

std::vector<float> GoldenFile::floats(const std::string& name) const {
  return values<float>(name, "F32");
}
std::vector<double> GoldenFile::doubles(const std::string& name) const {
  return values<double>(name, "F64");
}
std::vector<int32_t> GoldenFile::integers(const std::string& name) const {
  return values<int32_t>(name, "I32");
}
std::vector<int64_t> GoldenFile::wide(const std::string& name) const {
  return values<int64_t>(name, "I64");
}
std::vector<uint16_t> GoldenFile::words(const std::string& name) const {
  return values<uint16_t>(name, "U16");
}

std::vector<std::string> GoldenFile::names(const std::string& prefix) const {
  std::vector<std::string> result;
  for (const model::SafetensorsTensor& tensor : header_.tensors) {
    if (tensor.name.starts_with(prefix)) result.push_back(tensor.name);
  }
  return result;
}

GoldenLogits::GoldenLogits(const GoldenFile& file)
    : tokens(file.integers("tokens")),
      rows(file.integers("rows")),
      logits(file.floats("logits")),
      f32_squared_error(file.doubles("f32_squared_error")),
      bf16_squared_error(file.doubles("bf16_squared_error")),
      bf16_moved(file.integers("bf16_moved")) {}

}  // namespace tandem::parity
