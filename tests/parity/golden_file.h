#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "io/mapped_file.h"
#include "model/safetensors.h"

namespace tandem::parity {

/// One safetensors file of expected values. What it lacks ends the test program: the files are
/// committed beside the tests.
class GoldenFile {
 public:
  static Result<GoldenFile> open(const std::filesystem::path& path);

  std::vector<float> floats(const std::string& name) const;      // F32
  std::vector<double> doubles(const std::string& name) const;    // F64
  std::vector<int32_t> integers(const std::string& name) const;  // I32
  std::vector<int64_t> wide(const std::string& name) const;      // I64
  std::vector<uint16_t> words(const std::string& name) const;    // U16
  /// Names that start with `prefix`.
  std::vector<std::string> names(const std::string& prefix) const;

 private:
  GoldenFile(io::MappedFile file, model::SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}
  template <typename T>
  std::vector<T> values(const std::string& name, const char* dtype) const;

  io::MappedFile file_;
  model::SafetensorsHeader header_;
};

/// Rows of logits of one text as transformers computed them in float64, and how far its own f32 and
/// bf16 runs were from that.
struct GoldenLogits {
  explicit GoldenLogits(const GoldenFile& file);

  std::vector<TokenId> tokens;
  std::vector<int32_t> rows;               // positions in tokens, ascending
  std::vector<float> logits;               // [rows, vocabulary]
  std::vector<double> f32_squared_error;   // [rows]
  std::vector<double> bf16_squared_error;  // [rows]
  std::vector<int32_t> bf16_moved;         // [rows] 1: bf16 chose other experts than f32
};

}  // namespace tandem::parity
