#include "text/python_json.h"

#include <charconv>
#include <cmath>
#include <unordered_map>
#include <vector>

namespace tandem::text {
namespace {

// Builds the value itself instead of letting nlohmann do it, for three reasons: integers keep
// their digits, depth is bounded, and an object of many keys costs linear time (ordered_json
// searches all former keys for each new one).
class Builder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& spelling) override {
    if (spelling.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Json::binary(std::vector<uint8_t>(spelling.begin(), spelling.end())));
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    auto& object = level.value->get_ref<Json::object_t&>();
    const auto [entry, is_new] = level.places.try_emplace(name, object.size());
    level.place = entry->second;
    if (is_new) object.push_back({std::move(name), Json()});
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The library's text after its own "[json.exception...]" prefix.
    const std::string_view what = error.what();
    const size_t text = what.find("] ");
    error_ = text == std::string_view::npos ? what : what.substr(text + 2);
    if (error_.empty()) error_ = "damaged at byte " + std::to_string(position);
    return false;
  }

  Json& root() { return root_; }
  const std::string& error() const { return error_; }

 private:
  struct Level {
    Json* value;
    size_t place = 0;  // of the open key in an object
    std::unordered_map<std::string, size_t> places;
  };

  Json* slot() {
    if (levels_.empty()) return &root_;
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(Json());
      return &level.value->back();
    }
    auto& object = level.value->get_ref<Json::object_t&>();
    return &(object.begin() + static_cast<ptrdiff_t>(level.place))->second;
  }

  bool add(Json value) {
    *slot() = std::move(value);
    return true;
  }

  bool open(Json value) {
    if (levels_.size() >= static_cast<size_t>(kJsonDepthMax)) {
      error_ = "nested deeper than " + std::to_string(kJsonDepthMax) + " levels";
      return false;
    }
    Json* place = slot();
    *place = std::move(value);
    levels_.push_back({place});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  Json root_;
  // A level's value stays in place while it is open: only the innermost container grows.
  std::vector<Level> levels_;
  std::string error_;
};

void append_string(std::string_view value, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (byte < 0x20) {
          out += "\\u00";
          out += kHex[byte >> 4];
          out += kHex[byte & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append(const Json& value, std::string& out) {
  switch (value.type()) {
    case Json::value_t::object: {
      out += '{';
      bool is_first = true;
      for (const auto& [key, item] : value.get_ref<const Json::object_t&>()) {
        if (!is_first) out += ", ";
        is_first = false;
        append_string(key, out);
        out += ": ";
        append(item, out);
      }
      out += '}';
      return;
    }
    case Json::value_t::array: {
      out += '[';
      bool is_first = true;
      for (const Json& item : value) {
        if (!is_first) out += ", ";
        is_first = false;
        append(item, out);
      }
      out += ']';
      return;
    }
    case Json::value_t::string:
      append_string(value.get_ref<const std::string&>(), out);
      return;
    case Json::value_t::number_float:
      out += python_float(value.get<double>());
      return;
    case Json::value_t::binary: {
      const auto& digits = value.get_binary();
      out.append(digits.begin(), digits.end());
      return;
    }
    default:
      out += value.dump();  // null, true, false, integers
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view where) {
  Builder builder;
  if (!Json::sax_parse(text, &builder)) {
    return make_error(Code::kInvalidArgument,
                      std::string(where) + " is not usable JSON: " + builder.error());
  }
  return std::move(builder.root());
}

std::string dump_json(const Json& value) {
  std::string out;
  append(value, out);
  return out;
}

std::string python_float(double value) {
  // The shortest digits that read back as value, as d.ddde[+-]xx.
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), std::abs(value),
                                 std::chars_format::scientific);
  const std::string_view spelling(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = spelling.find('e');
  const int exponent = std::atoi(std::string(spelling.substr(mark + 1)).c_str());
  std::string digits(1, spelling[0]);
  if (mark > 2) digits += spelling.substr(2, mark - 2);
  const int digits_count = static_cast<int>(digits.size());

  std::string out = std::signbit(value) ? "-" : "";
  // Python's repr switches to an exponent below 1e-4 and from 1e16 on.
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits_count > 1) out += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  if (exponent + 1 >= digits_count) {
    return out + digits + std::string(exponent + 1 - digits_count, '0') + ".0";
  }
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

}  // namespace tandem::text
