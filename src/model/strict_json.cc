#include "model/strict_json.h"

#include <utility>
#include <vector>

namespace tandem::model {
namespace {

/// Builds the value from the parser's events. nlohmann's own builder keeps the last of two equal
/// keys and knows no limits; stopping at an event is also the only way to learn where an error is
/// without exceptions.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(JsonLimits limits) : limits_(limits) {}

  bool null() override { return place(nullptr); }
  bool boolean(bool value) override { return place(value); }
  bool number_integer(int64_t value) override { return place(value); }
  bool number_unsigned(uint64_t value) override { return place(value); }
  bool number_float(double value, const std::string&) override { return place(value); }
  bool string(std::string& value) override { return place(std::move(value)); }
  bool binary(Json::binary_t&) override { return fail("binary values are not JSON"); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    auto [at, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!is_new) return fail("key " + json_excerpt(name) + " appears twice in one object");
    next_member_ = &at->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return fail("not valid JSON at byte " + std::to_string(position));
  }

  const std::string& error() const { return error_; }
  Json take() { return std::move(root_); }

 private:
  bool fail(std::string what) {
    error_ = std::move(what);
    return false;
  }

  bool place(Json value) { return insert(std::move(value)) != nullptr; }

  bool open(Json value) {
    if (static_cast<int>(open_.size()) == limits_.depth_max) {
      return fail("nested deeper than " + std::to_string(limits_.depth_max) + " levels");
    }
    Json* inserted = insert(std::move(value));
    if (inserted != nullptr) open_.push_back(inserted);
    return inserted != nullptr;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  /// Puts a value where the document is: pointers to parents stay valid, since an array only grows
  /// after its last element is closed and the members of an object do not move.
  Json* insert(Json value) {
    if (++values_count_ > limits_.values_max) {
      fail("more than " + std::to_string(limits_.values_max) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& array = open_.back()->get_ref<Json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    *next_member_ = std::move(value);
    return next_member_;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;      // the arrays and objects around the current place
  Json* next_member_ = nullptr;  // the value of the last key
  size_t values_count_ = 0;
  std::string error_;
};

}  // namespace

Result<Json> parse_strict_json(std::string_view text, JsonLimits limits) {
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return make_error(Code::kInvalidArgument,
                      "not valid JSON: zero byte at byte " + std::to_string(zero + 1));
  }
  Builder builder(limits);
  if (!Json::sax_parse(text, &builder)) return make_error(Code::kInvalidArgument, builder.error());
  return builder.take();
}

std::string json_excerpt(const Json& value) {
  constexpr size_t kLengthMax = 80;
  if (value.is_structured() && value.size() > kLengthMax) {
    return std::string(value.is_array() ? "an array" : "an object") + " of " +
           std::to_string(value.size()) + " values";
  }
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLengthMax) text = text.substr(0, kLengthMax) + "...";
  return text;
}

}  // namespace tandem::model
