#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/openai/api_error.h"
#include "server/openai/json_parse.h"

namespace tandem::server::openai {

/// Inclusive unless `above_min`: then the value must be larger than `min`.
struct NumberRange {
  double min;
  double max;
  bool above_min = false;
};

/// Reads typed, bounded fields of a JSON object. An absent or null field reads as nothing. The
/// first fault is kept and names its field; later ones are ignored, so a parser can read
/// everything and look once at the end.
class Fields {
 public:
  /// `object` must be an object and outlive this.
  explicit Fields(const Json& object) : object_(object) {}

  /// The field, or nullptr when it is absent or null.
  const Json* find(std::string_view name) const;

  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max);
  std::optional<double> number(std::string_view name, NumberRange range);
  std::optional<std::string> string(std::string_view name, size_t bytes_max);

  void fail(ApiError error);
  void fail_type(std::string param, std::string_view expected, const Json& found);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& object_;
  std::optional<ApiError> error_;
};

/// A JSON number that is a whole number in int64's range (5.0 counts), else nothing.
std::optional<int64_t> whole_number(const Json& value);

}  // namespace tandem::server::openai
