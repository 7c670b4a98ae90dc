#include "server/openai/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace tandem::server::openai {

const Json* Fields::find(std::string_view name) const {
  const auto field = object_.find(name);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::fail_type(std::string param, std::string_view expected, const Json& found) {
  std::string message =
      fmt::format("\"{}\" must be {}, but is a JSON {}.", param, expected, found.type_name());
  fail(invalid_field(std::move(param), "invalid_type", std::move(message)));
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_boolean()) return value->get<bool>();
  fail_type(std::string(name), "true or false", *value);
  return {};
}

std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    constexpr double kExactMax = 9007199254740992.0;  // 2^53: every whole double below is exact
    const double number = value.get<double>();
    if (std::abs(number) <= kExactMax && number == std::floor(number)) {
      return static_cast<int64_t>(number);
    }
  }
  return {};
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t min, int64_t max) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_number()) {
    fail_type(std::string(name), "a whole number", *value);
    return {};
  }
  const auto number = whole_number(*value);
  if (number && *number >= min && *number <= max) return number;
  fail(invalid_field(std::string(name), "invalid_value",
                     fmt::format("\"{}\" must be a whole number from {} to {}, but is {}.", name,
                                 min, max, value->dump())));
  return {};
}

std::optional<double> Fields::number(std::string_view name, NumberRange range) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_number()) {
    fail_type(std::string(name), "a number", *value);
    return {};
  }
  const double number = value->get<double>();
  const bool low_enough = number <= range.max;
  const bool high_enough = range.above_min ? number > range.min : number >= range.min;
  if (low_enough && high_enough) return number;
  fail(invalid_field(
      std::string(name), "invalid_value",
      fmt::format("\"{}\" must be {} {} and at most {}, but is {}.", name,
                  range.above_min ? "above" : "at least", range.min, range.max, value->dump())));
  return {};
}

std::optional<std::string> Fields::string(std::string_view name, size_t bytes_max) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    fail_type(std::string(name), "a string", *value);
    return {};
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() <= bytes_max) return text;
  fail(invalid_field(
      std::string(name), "invalid_value",
      fmt::format("\"{}\" may have at most {} bytes, but has {}.", name, bytes_max, text.size())));
  return {};
}

}  // namespace tandem::server::openai
