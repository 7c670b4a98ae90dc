#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/dtype.h"

namespace tandem::model {

/// One element type of the safetensors format, as its header names it.
struct FileDType {
  const char* name = "";
  int bits = 0;
  std::optional<DType> dtype;  ///< the type of ours, when there is one
};

/// One tensor of a safetensors file: little-endian, row-major, packed.
struct SafetensorsTensor {
  std::string name;
  FileDType dtype;
  std::vector<int64_t> shape;  ///< may be empty (a scalar) and may contain zeros
  size_t offset = 0;           ///< of the first byte, from the start of the file
  size_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;       ///< in file order; they fill the file exactly
  std::map<std::string, std::string> metadata;  ///< free text of whoever wrote the file
};

/// Reads the header of a whole safetensors file and checks all of it: what comes back points at
/// bytes that exist, belong to one tensor each, leave no gap, and are as many as dtype and shape
/// say. The bytes may be anything; the data behind the header is not touched.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file_bytes);

}  // namespace tandem::model
