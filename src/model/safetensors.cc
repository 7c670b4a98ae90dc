#include "model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "model/json_fields.h"

namespace tandem::model {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kHeaderBytesMax = 100'000'000;  // of the format
constexpr int kDepthMax = 4;                     // the format needs 3
constexpr size_t kRankMax = 8;
constexpr size_t kNameBytesMax = 1024;
constexpr int64_t kDimensionMax = int64_t{1} << 48;
// About 7 values a tensor: a million tensors, five times what the largest released model has.
constexpr size_t kValuesMax = 7'000'000;

constexpr FileDType kFileDTypes[] = {
    {"BF16", 16, DType::kBF16},
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"I32", 32, DType::kI32},
    {"U8", 8, DType::kU8},
    {"BOOL", 8, {}},
    {"I8", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"U32", 32, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"F64", 64, {}},
    {"C64", 64, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
};

Error damaged(std::string what) {
  return make_error(Code::kDataLoss, std::move(what));
}

Result<FileDType> find_dtype(const std::string& name) {
  for (const FileDType& type : kFileDTypes) {
    if (name == type.name) return type;
  }
  return make_error(Code::kUnimplemented, "unknown dtype " + json_excerpt(name));
}

/// Bytes of a tensor, or an Error when they do not fit 64 bits or are no whole number.
Result<uint64_t> tensor_bytes(const FileDType& dtype, const std::vector<int64_t>& shape) {
  uint64_t bits = static_cast<uint64_t>(dtype.bits);
  const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (is_empty) return uint64_t{0};
  for (int64_t dimension : shape) {
    if (__builtin_mul_overflow(bits, static_cast<uint64_t>(dimension), &bits)) {
      return damaged("shape " + json_excerpt(shape) + " is too large");
    }
  }
  if (bits % 8 != 0) {
    return damaged("shape " + json_excerpt(shape) + " of " + dtype.name + " ends inside a byte");
  }
  return bits / 8;
}

Result<void> check_name(const std::string& name) {
  if (name.empty()) return damaged("a tensor has an empty name");
  if (name.size() > kNameBytesMax) {
    return damaged("the name " + json_excerpt(name) + " is longer than " +
                   std::to_string(kNameBytesMax) + " bytes");
  }
  if (name.find('\0') != std::string::npos) {
    return damaged("the name " + json_excerpt(name) + " contains a zero byte");
  }
  return {};
}

/// `data_begin` and `data_bytes` bound the part of the file that is behind the header.
Result<SafetensorsTensor> parse_tensor(const std::string& name, const Json& value,
                                       size_t data_begin, size_t data_bytes) {
  if (!value.is_object()) return damaged("expected an object, not " + json_excerpt(value));
  const JsonFields fields(value);
  const std::optional<std::string> dtype = TANDEM_TRY(fields.string("dtype"));
  const auto shape = TANDEM_TRY(fields.integers("shape", {0, kDimensionMax}));
  const auto offsets = TANDEM_TRY(fields.integers("data_offsets", {0, INT64_MAX}));
  if (!dtype || !shape || !offsets) return damaged("dtype, shape or data_offsets is absent");
  if (shape->size() > kRankMax) {
    return damaged("has " + std::to_string(shape->size()) + " dimensions, at most " +
                   std::to_string(kRankMax) + " are supported");
  }
  if (offsets->size() != 2) return damaged("\"data_offsets\" needs a begin and an end");

  const uint64_t begin = static_cast<uint64_t>((*offsets)[0]);
  const uint64_t end = static_cast<uint64_t>((*offsets)[1]);
  if (begin > end) return damaged("begins behind its end: " + json_excerpt(*offsets));
  if (end > data_bytes) {
    return damaged("ends at byte " + std::to_string(end) + " of the data, but the file has only " +
                   std::to_string(data_bytes) + "; it is truncated, copy or download it again");
  }
  SafetensorsTensor tensor{.name = name, .dtype = TANDEM_TRY(find_dtype(*dtype)), .shape = *shape};
  const uint64_t expected = TANDEM_TRY(tensor_bytes(tensor.dtype, tensor.shape));
  if (end - begin != expected) {
    return damaged("has " + std::to_string(end - begin) + " bytes, but " + *dtype + " " +
                   json_excerpt(*shape) + " needs " + std::to_string(expected));
  }
  tensor.offset = data_begin + begin;
  tensor.bytes = end - begin;
  return tensor;
}

Result<std::map<std::string, std::string>> parse_metadata(const Json& value) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) return damaged("\"__metadata__\" is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      return damaged("\"__metadata__\" holds " + json_excerpt(text) + ", which is not a string");
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

/// Tensors must lie one after another from the first byte to the last.
Result<void> check_layout(const std::vector<SafetensorsTensor>& tensors, size_t data_begin,
                          size_t file_bytes) {
  size_t filled = data_begin;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.offset != filled) {
      return damaged(
          "tensor " + json_excerpt(tensor.name) +
          (tensor.offset < filled ? " overlaps the one before it" : " leaves a hole before it") +
          " (at byte " + std::to_string(tensor.offset) + ", expected at " + std::to_string(filled) +
          ")");
    }
    filled += tensor.bytes;
  }
  if (filled != file_bytes) {
    return damaged("the file has " + std::to_string(file_bytes - filled) +
                   " bytes behind its last tensor");
  }
  return {};
}

/// The text of the header, without looking into it.
Result<std::string_view> header_text(std::span<const std::byte> file_bytes) {
  if (file_bytes.size() < kLengthBytes) {
    return damaged("not a safetensors file: " + std::to_string(file_bytes.size()) +
                   " bytes are less than the 8 of the header's length");
  }
  static_assert(std::endian::native == std::endian::little, "the file is little-endian");
  uint64_t length = 0;
  std::memcpy(&length, file_bytes.data(), kLengthBytes);
  if (length > kHeaderBytesMax) {
    return damaged("not a safetensors file: its header would have " + std::to_string(length) +
                   " bytes, at most " + std::to_string(kHeaderBytesMax) + " are allowed");
  }
  if (length > file_bytes.size() - kLengthBytes) {
    return damaged("the header has " + std::to_string(length) + " bytes, but the file ends after " +
                   std::to_string(file_bytes.size() - kLengthBytes) +
                   "; it is truncated, copy or download it again");
  }
  return std::string_view(reinterpret_cast<const char*>(file_bytes.data()) + kLengthBytes,
                          static_cast<size_t>(length));
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file_bytes) {
  const std::string_view text = TANDEM_TRY(header_text(file_bytes));
  if (!text.starts_with('{')) return damaged("the header does not begin with an object");
  Result<Json> document =
      parse_strict_json(text, {.depth_max = kDepthMax, .values_max = kValuesMax});
  if (!document.ok()) return with_context(document.error(), "the header");

  const size_t data_begin = kLengthBytes + text.size();
  const size_t data_bytes = file_bytes.size() - data_begin;
  SafetensorsHeader header;
  header.tensors.reserve(document->size());
  for (const auto& [name, value] : document->items()) {
    if (name == "__metadata__") {
      header.metadata = TANDEM_TRY(parse_metadata(value));
      continue;
    }
    TANDEM_TRY(check_name(name));
    Result<SafetensorsTensor> tensor = parse_tensor(name, value, data_begin, data_bytes);
    if (!tensor.ok()) return with_context(tensor.error(), "tensor " + json_excerpt(name));
    header.tensors.push_back(std::move(*tensor));
  }
  // An empty tensor shares its offset with the next one and must come first.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
            });
  TANDEM_TRY(check_layout(header.tensors, data_begin, file_bytes.size()));
  return header;
}

}  // namespace tandem::model
