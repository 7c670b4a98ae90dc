#include "text/json_node.h"

#include "base/check.h"
#include "text/utf8.h"

namespace tandem::text {

Error JsonNode::error(Code code, const std::string& what, const char* file, int line) const {
  return make_error(code, path_ + ": " + what, file, line);
}

Error JsonNode::wrong_type(const char* expected) const {
  return error(Code::kInvalidArgument,
               std::string("is ") + value_->type_name() + ", expected " + expected);
}

Result<JsonNode> JsonNode::member_or_null(const char* key) const {
  static const nlohmann::json kNull = nullptr;
  TANDEM_TRY(require_object());
  const auto found = value_->find(key);
  const std::string path = path_.empty() ? key : path_ + "." + key;
  return JsonNode(found == value_->end() ? kNull : *found, path);
}

Result<JsonNode> JsonNode::member(const char* key) const {
  TANDEM_TRY(require_object());
  const auto found = value_->find(key);
  const std::string path = path_.empty() ? key : path_ + "." + key;
  if (found == value_->end()) return make_error(Code::kInvalidArgument, path + ": is missing");
  return JsonNode(*found, path);
}

JsonNode JsonNode::element(size_t index) const {
  TANDEM_CHECK(value_->is_array() && index < value_->size());
  return JsonNode((*value_)[index], path_ + "[" + std::to_string(index) + "]");
}

Result<std::string_view> JsonNode::string() const {
  if (!value_->is_string()) return wrong_type("a string");
  return std::string_view(value_->get_ref<const std::string&>());
}

Result<bool> JsonNode::boolean() const {
  if (!value_->is_boolean()) return wrong_type("true or false");
  return value_->get<bool>();
}

Result<int64_t> JsonNode::integer(int64_t min, int64_t max) const {
  if (!value_->is_number_integer()) return wrong_type("an integer");
  // An unsigned value past INT64_MAX would wrap in get<int64_t>.
  const bool is_huge = value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX;
  const int64_t number = is_huge ? INT64_MAX : value_->get<int64_t>();
  if (number < min || number > max) {
    return error(Code::kInvalidArgument,
                 "is out of range, expected " + std::to_string(min) + " to " + std::to_string(max));
  }
  return number;
}

Result<size_t> JsonNode::array_size() const {
  if (!value_->is_array()) return wrong_type("an array");
  return value_->size();
}

Result<void> JsonNode::require_object() const {
  if (!value_->is_object()) {
    if (path_.empty()) {
      return make_error(Code::kInvalidArgument, std::string("the document is ") +
                                                    value_->type_name() + ", expected an object");
    }
    return wrong_type("an object");
  }
  return {};
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kBytesMax = 60;
  std::string shown(text.substr(0, kBytesMax));
  // A cut may leave half a character, which is dropped.
  shown.resize(valid_utf8_prefix(shown));
  if (shown.size() < text.size()) shown += "...";
  return nlohmann::json(shown).dump();
}

}  // namespace tandem::text
