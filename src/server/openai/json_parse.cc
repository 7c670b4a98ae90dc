#include "server/openai/json_parse.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace tandem::server::openai {

namespace {

/// Objects up to this size are searched for a repeated key; larger ones get a hash set.
constexpr size_t kKeysSearchedMax = 16;

/// Receives the parser's events and builds the document. Returning false stops the parser.
class Builder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return fail("binary values are not JSON"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& key) {
    Frame& frame = frames_.back();
    if (holds(frame, key)) {
      return fail(fmt::format("the key \"{}\" appears twice in one object", key.substr(0, 64)));
    }
    key_ = std::move(key);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view what = error.what();  // "[json.exception...] parse error at line 1, ...: why"
    if (const size_t end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    return fail(fmt::format("not valid JSON near byte {}: {}", position, what.substr(0, 200)));
  }

  std::optional<std::string> failure;
  Json root;

 private:
  struct Frame {
    Json* container;
    std::unordered_set<std::string> keys;  // only of large objects
  };

  bool fail(std::string why) {
    failure = std::move(why);
    return false;
  }

  static bool holds(Frame& frame, const std::string& key) {
    const auto& object = frame.container->get_ref<const Json::object_t&>();
    if (object.size() <= kKeysSearchedMax) {
      for (const auto& [name, value] : object) {
        if (name == key) return true;
      }
      return false;
    }
    if (frame.keys.empty()) {
      for (const auto& [name, value] : object) frame.keys.insert(name);
    }
    return !frame.keys.insert(key).second;
  }

  bool add(Json value) {
    if (++values_count_ > limits_.values_count_max) {
      return fail(fmt::format("more than {} values", limits_.values_count_max));
    }
    if (frames_.empty()) {
      root = std::move(value);
      last_ = &root;
      return true;
    }
    Json& container = *frames_.back().container;
    if (container.is_array()) {
      auto& array = container.get_ref<Json::array_t&>();
      last_ = &array.emplace_back(std::move(value));
    } else {
      // Straight into the underlying vector: the key is known to be new.
      auto& object = container.get_ref<Json::object_t&>();
      object.emplace_back(std::move(key_), std::move(value));
      last_ = &object.back().second;
    }
    return true;
  }

  bool open(Json container) {
    if (frames_.size() >= static_cast<size_t>(limits_.depth_max)) {
      return fail(fmt::format("nested deeper than {} levels", limits_.depth_max));
    }
    if (!add(std::move(container))) return false;
    frames_.push_back({.container = last_, .keys = {}});
    return true;
  }

  bool close() {
    frames_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  std::vector<Frame> frames_;  // a container does not move while it is the open one or below it
  Json* last_ = nullptr;
  std::string key_;
  size_t values_count_ = 0;
};

}  // namespace

ApiResult<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  // The parser takes a zero byte for the end of the text and would ignore all that follows.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return invalid_field("", "invalid_json",
                         fmt::format("The request body could not be read: not valid JSON near byte "
                                     "{}: a zero byte. Send one JSON object in UTF-8.",
                                     zero + 1));
  }
  Builder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return invalid_field("", "invalid_json",
                         "The request body could not be read: " + builder.failure.value_or("?") +
                             ". Send one JSON object in UTF-8.");
  }
  return std::move(builder.root);
}

}  // namespace tandem::server::openai
