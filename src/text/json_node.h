#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace tandem::text {

/// A value in a JSON document that knows its path, so that an error can name it. Borrows the
/// document. Every read checks the type; none throws.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  /// A member of an object; an Error if it is missing or this is no object.
  Result<JsonNode> member(const char* key) const;
  /// The same, but a missing member reads as null.
  Result<JsonNode> member_or_null(const char* key) const;
  /// An element of an array, which must exist.
  JsonNode element(size_t index) const;

  Result<std::string_view> string() const;
  Result<bool> boolean() const;
  Result<int64_t> integer(int64_t min, int64_t max) const;
  Result<size_t> array_size() const;
  Result<void> require_object() const;

  /// "<path>: <what>".
  Error error(Code code, const std::string& what, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) const;

 private:
  Error wrong_type(const char* expected) const;

  const nlohmann::json* value_;
  std::string path_;
};

/// A text in quotes for an error: JSON escapes, cut to a readable length.
std::string in_quotes(std::string_view text);

}  // namespace tandem::text
