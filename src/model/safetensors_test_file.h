#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "model/strict_json.h"

namespace tandem::model {

/// For tests: one tensor of a file to write.
struct TestTensor {
  std::string name;
  std::string dtype = "BF16";
  std::vector<int64_t> shape;
  size_t bytes = 0;
  char fill = 0;  ///< every byte of the data
};

/// For tests: the bytes of a safetensors file with these tensors, in this order.
inline std::string safetensors_file(const std::vector<TestTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const TestTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes}}};
    data += std::string(tensor.bytes, tensor.fill);
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + text + data;
}

}  // namespace tandem::model
