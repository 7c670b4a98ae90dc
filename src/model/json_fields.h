#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/strict_json.h"

namespace tandem::model {

/// Typed access to the fields of one JSON object, null counting as absent. Every Error names the
/// field, the value found and what was expected. Borrows the object; keeps nothing else.
class JsonFields {
 public:
  /// `prefix` goes in front of names in errors: "text_config.".
  explicit JsonFields(const Json& object, std::string prefix = "");

  /// The value, or nullptr when the field is absent or null.
  const Json* find(const char* name) const;
  /// The value as it is, an explicit null included.
  const Json* find_or_null(const char* name) const;
  bool has(const char* name) const { return find(name) != nullptr; }
  /// The field's name with the prefix, quoted: for the caller's own errors.
  std::string quoted(const char* name) const;

  template <typename T>
  struct Range {
    T least;
    T most;
  };
  Result<std::optional<int64_t>> integer(const char* name, Range<int64_t> range) const;
  Result<std::optional<double>> number(const char* name, Range<double> range) const;
  Result<std::optional<bool>> boolean(const char* name) const;
  Result<std::optional<std::string>> string(const char* name) const;
  /// An array of integers; nullopt when absent.
  Result<std::optional<std::vector<int64_t>>> integers(const char* name,
                                                       Range<int64_t> range) const;
  Result<std::optional<std::vector<std::string>>> strings(const char* name) const;
  /// An object, or nullptr when absent.
  Result<const Json*> object(const char* name) const;

 private:
  Error wrong(const char* name, const Json& value, const std::string& expected) const;
  Result<int64_t> integer_of(const char* name, const Json& value, Range<int64_t> range) const;

  const Json& object_;
  std::string prefix_;
};

}  // namespace tandem::model
