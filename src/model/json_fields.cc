#include "model/json_fields.h"

#include <cstdio>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tandem::model {
namespace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

JsonFields::JsonFields(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {
  TANDEM_CHECK(object.is_object(), "only objects have fields");
}

const Json* JsonFields::find_or_null(const char* name) const {
  const auto at = object_.find(name);
  return at == object_.end() ? nullptr : &*at;
}

const Json* JsonFields::find(const char* name) const {
  const Json* value = find_or_null(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string JsonFields::quoted(const char* name) const {
  return "\"" + prefix_ + name + "\"";
}

Error JsonFields::wrong(const char* name, const Json& value, const std::string& expected) const {
  return make_error(Code::kInvalidArgument,
                    quoted(name) + " is " + json_excerpt(value) + ", expected " + expected);
}

Result<int64_t> JsonFields::integer_of(const char* name, const Json& value,
                                       Range<int64_t> range) const {
  const std::string expected =
      "an integer from " + std::to_string(range.least) + " to " + std::to_string(range.most);
  if (!value.is_number_integer()) return wrong(name, value, expected);
  // Values beyond int64 are kept unsigned by the parser; their cast would wrap to a negative.
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (value.is_number_unsigned() && value.get<uint64_t>() > kMost) {
    return wrong(name, value, expected);
  }
  const int64_t integer = value.get<int64_t>();
  if (integer < range.least || integer > range.most) return wrong(name, value, expected);
  return integer;
}

Result<std::optional<int64_t>> JsonFields::integer(const char* name, Range<int64_t> range) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<int64_t>();
  return std::optional<int64_t>(TANDEM_TRY(integer_of(name, *value, range)));
}

Result<std::optional<double>> JsonFields::number(const char* name, Range<double> range) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<double>();
  const std::string expected =
      "a number from " + short_number(range.least) + " to " + short_number(range.most);
  if (!value->is_number()) return wrong(name, *value, expected);
  const double number = value->get<double>();
  const bool is_inside = number >= range.least && number <= range.most;  // false for NaN
  if (!is_inside) return wrong(name, *value, expected);
  return std::optional<double>(number);
}

Result<std::optional<bool>> JsonFields::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return wrong(name, *value, "true or false");
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<std::string>> JsonFields::string(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong(name, *value, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

Result<std::optional<std::vector<int64_t>>> JsonFields::integers(const char* name,
                                                                 Range<int64_t> range) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  if (!value->is_array()) return wrong(name, *value, "an array of integers");
  std::vector<int64_t> result;
  for (const Json& element : *value) {
    result.push_back(TANDEM_TRY(integer_of(name, element, range)));
  }
  return std::optional<std::vector<int64_t>>(std::move(result));
}

Result<std::optional<std::vector<std::string>>> JsonFields::strings(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<std::vector<std::string>>();
  if (!value->is_array()) return wrong(name, *value, "an array of strings");
  std::vector<std::string> result;
  for (const Json& element : *value) {
    if (!element.is_string()) return wrong(name, element, "strings only");
    result.push_back(element.get<std::string>());
  }
  return std::optional<std::vector<std::string>>(std::move(result));
}

Result<const Json*> JsonFields::object(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return value;
  if (!value->is_object()) return wrong(name, *value, "an object");
  return value;
}

}  // namespace tandem::model
