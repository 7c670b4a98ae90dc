#include "text/splitter.h"

#include "base/check.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

constexpr std::string_view kQwen3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What the alternatives of the two expressions ask of a character. Marks are words only in the
// rule that knows them; in the other one they are symbols.
enum class Kind { kEnd, kWord, kNumber, kNewline, kSpace, kSymbol };

// Reads a text character by character.
class Cursor {
 public:
  Cursor(SplitRule rule, std::string_view text) : rule_(rule), text_(text) { read(); }

  Kind kind() const { return kind_; }
  size_t offset() const { return offset_; }
  bool at(char byte) const { return offset_ < text_.size() && text_[offset_] == byte; }
  void next() {
    offset_ += bytes_;
    read();
  }
  void skip_all(Kind kind) {
    while (kind_ == kind) next();
  }

 private:
  void read() {
    bytes_ = 0;
    kind_ = Kind::kEnd;
    if (offset_ == text_.size()) return;
    const Utf8Step step = utf8_step(text_.substr(offset_));
    bytes_ = step.bytes;
    kind_ = kind_of(step.code_point);
  }

  Kind kind_of(char32_t code_point) const {
    switch (character_class(code_point)) {
      case CharacterClass::kLetter:
        return Kind::kWord;
      case CharacterClass::kMark:
        return rule_ == SplitRule::kQwen35 ? Kind::kWord : Kind::kSymbol;
      case CharacterClass::kNumber:
        return Kind::kNumber;
      case CharacterClass::kSpace:
        return code_point == '\r' || code_point == '\n' ? Kind::kNewline : Kind::kSpace;
      case CharacterClass::kOther:
        return Kind::kSymbol;
    }
    return Kind::kSymbol;
  }

  SplitRule rule_;
  std::string_view text_;
  size_t offset_ = 0;
  size_t bytes_ = 0;
  Kind kind_ = Kind::kEnd;
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d): bytes that match, 0 for none.
size_t contraction_bytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto letter = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
  }
  // U+017F, the long s, is the only other character that folds to one of these letters.
  return text.substr(1).starts_with("\xC5\xBF") ? 3 : 0;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ on a text that starts with white space.
size_t space_bytes(Cursor cursor) {
  size_t newlines_end = 0;
  size_t last = 0;
  while (cursor.kind() == Kind::kSpace || cursor.kind() == Kind::kNewline) {
    const bool is_newline = cursor.kind() == Kind::kNewline;
    last = cursor.offset();
    cursor.next();
    if (is_newline) newlines_end = cursor.offset();
  }
  if (newlines_end > 0) return newlines_end;
  // The last space is left to the word that follows, unless it is the only one.
  const bool is_before_word = cursor.kind() != Kind::kEnd;
  return is_before_word && last > 0 ? last : cursor.offset();
}

}  // namespace

std::optional<SplitRule> split_rule_of(std::string_view regex) {
  if (regex == kQwen3Regex) return SplitRule::kQwen3;
  if (regex == kQwen35Regex) return SplitRule::kQwen35;
  return std::nullopt;
}

// One block per alternative, in their order. In the comments X is \p{L} or [\p{L}\p{M}].
size_t first_piece_bytes(SplitRule rule, std::string_view text) {
  TANDEM_DCHECK(!text.empty());
  if (const size_t bytes = contraction_bytes(text); bytes > 0) return bytes;

  const Cursor start(rule, text);
  Cursor after = start;
  after.next();

  // [^\r\n\p{L}\p{N}]?X+
  const bool may_lead_word = start.kind() == Kind::kSpace || start.kind() == Kind::kSymbol;
  if (start.kind() == Kind::kWord || (may_lead_word && after.kind() == Kind::kWord)) {
    after.skip_all(Kind::kWord);
    return after.offset();
  }
  // \p{N}
  if (start.kind() == Kind::kNumber) return after.offset();
  // ` ?[^\s\p{N}X]+[\r\n]*`
  if (start.kind() == Kind::kSymbol || (start.at(' ') && after.kind() == Kind::kSymbol)) {
    after.skip_all(Kind::kSymbol);
    after.skip_all(Kind::kNewline);
    return after.offset();
  }
  return space_bytes(start);
}

}  // namespace tandem::text
