#include "text/tokenizer_json.h"

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/json_node.h"

namespace tandem::text {
namespace {

// Bounds the tables that are indexed by id; about sixteen times the largest vocabulary in use.
constexpr TokenId kIdMax = (1 << 22) - 1;

using TokenIds = std::unordered_map<std::string, TokenId>;

Error unsupported(const JsonNode& node, const std::string& found, const std::string& supported) {
  return node.error(Code::kUnimplemented, found + " is not supported; supported: " + supported);
}

// "type" of an object, which must be the expected one.
Result<void> require_type(const JsonNode& node, const std::string& expected) {
  const JsonNode type = TANDEM_TRY(node.member("type"));
  const std::string_view name = TANDEM_TRY(type.string());
  if (name != expected) return unsupported(type, in_quotes(name), in_quotes(expected));
  return {};
}

// A boolean member that this tokenizer supports with one value only, which is also its default.
Result<void> require_flag(const JsonNode& node, const char* key, bool expected) {
  const JsonNode flag = TANDEM_TRY(node.member_or_null(key));
  if (flag.is_null() || TANDEM_TRY(flag.boolean()) == expected) return {};
  return unsupported(flag, expected ? "false" : "true", expected ? "true" : "false");
}

// A member that must be absent, null or an empty string.
Result<void> require_no_text(const JsonNode& node, const char* key) {
  const JsonNode text = TANDEM_TRY(node.member_or_null(key));
  if (text.is_null()) return {};
  const std::string_view value = TANDEM_TRY(text.string());
  if (!value.empty()) return unsupported(text, in_quotes(value), "null");
  return {};
}

Result<bool> parse_normalizer(const JsonNode& root) {
  const JsonNode normalizer = TANDEM_TRY(root.member_or_null("normalizer"));
  if (normalizer.is_null()) return false;
  TANDEM_TRY(require_type(normalizer, "NFC"));
  return true;
}

Result<SplitRule> parse_pre_tokenizer(const JsonNode& root) {
  const JsonNode sequence = TANDEM_TRY(root.member("pre_tokenizer"));
  TANDEM_TRY(require_type(sequence, "Sequence"));
  const JsonNode list = TANDEM_TRY(sequence.member("pretokenizers"));
  const size_t count = TANDEM_TRY(list.array_size());
  if (count != 2) {
    return unsupported(list, std::to_string(count) + " elements", "a Split and a ByteLevel");
  }

  const JsonNode split = list.element(0);
  TANDEM_TRY(require_type(split, "Split"));
  const JsonNode behavior = TANDEM_TRY(split.member("behavior"));
  const std::string_view behavior_name = TANDEM_TRY(behavior.string());
  if (behavior_name != "Isolated") {
    return unsupported(behavior, in_quotes(behavior_name), "\"Isolated\"");
  }
  TANDEM_TRY(require_flag(split, "invert", false));
  const JsonNode pattern = TANDEM_TRY(split.member("pattern"));
  const JsonNode regex = TANDEM_TRY(pattern.member("Regex"));
  const std::string_view expression = TANDEM_TRY(regex.string());
  const std::optional<SplitRule> rule = split_rule_of(expression);
  if (!rule.has_value()) {
    return unsupported(regex, in_quotes(expression), "the expressions of Qwen3 and of Qwen3.5");
  }

  // The ByteLevel step only spells the bytes: prefix spaces and its own split must be off.
  const JsonNode byte_level = list.element(1);
  TANDEM_TRY(require_type(byte_level, "ByteLevel"));
  for (const char* key : {"add_prefix_space", "use_regex"}) {
    // Absent reads as true in the library that writes these files.
    const JsonNode flag = TANDEM_TRY(byte_level.member(key));
    if (TANDEM_TRY(flag.boolean())) return unsupported(flag, "true", "false");
  }
  return *rule;
}

Result<void> check_ends(const JsonNode& root) {
  const JsonNode post_processor = TANDEM_TRY(root.member_or_null("post_processor"));
  if (!post_processor.is_null()) TANDEM_TRY(require_type(post_processor, "ByteLevel"));
  const JsonNode decoder = TANDEM_TRY(root.member("decoder"));
  return require_type(decoder, "ByteLevel");
}

Result<void> check_model_options(const JsonNode& model) {
  TANDEM_TRY(require_type(model, "BPE"));
  const JsonNode dropout = TANDEM_TRY(model.member_or_null("dropout"));
  if (!dropout.is_null() && !(dropout.value().is_number() && dropout.value() == 0)) {
    return unsupported(dropout, "a dropout", "null");
  }
  TANDEM_TRY(require_no_text(model, "unk_token"));
  TANDEM_TRY(require_no_text(model, "continuing_subword_prefix"));
  TANDEM_TRY(require_no_text(model, "end_of_word_suffix"));
  TANDEM_TRY(require_flag(model, "byte_fallback", false));
  return require_flag(model, "ignore_merges", false);
}

Result<TokenizerDefinition::AddedToken> parse_added_token(const JsonNode& node) {
  const auto flag = [&](const char* key) -> Result<bool> {
    const JsonNode member = TANDEM_TRY(node.member(key));
    return member.boolean();
  };
  const JsonNode id = TANDEM_TRY(node.member("id"));
  const JsonNode content = TANDEM_TRY(node.member("content"));
  TokenizerDefinition::AddedToken token;
  token.id = static_cast<TokenId>(TANDEM_TRY(id.integer(0, kIdMax)));
  token.content = std::string(TANDEM_TRY(content.string()));
  if (token.content.empty()) return content.error(Code::kInvalidArgument, "is empty");
  token.lstrip = TANDEM_TRY(flag("lstrip"));
  token.rstrip = TANDEM_TRY(flag("rstrip"));
  token.normalized = TANDEM_TRY(flag("normalized"));
  token.special = TANDEM_TRY(flag("special"));
  // It would need the regular expression class \w, and no supported model uses it.
  const JsonNode single_word = TANDEM_TRY(node.member("single_word"));
  if (TANDEM_TRY(single_word.boolean())) return unsupported(single_word, "true", "false");
  return token;
}

Result<std::vector<TokenizerDefinition::AddedToken>> parse_added_tokens(const JsonNode& root) {
  std::vector<TokenizerDefinition::AddedToken> tokens;
  const JsonNode list = TANDEM_TRY(root.member_or_null("added_tokens"));
  if (list.is_null()) return tokens;
  const size_t count = TANDEM_TRY(list.array_size());
  std::unordered_set<std::string> contents;
  std::unordered_set<TokenId> ids;
  for (size_t i = 0; i < count; ++i) {
    const JsonNode node = list.element(i);
    TokenizerDefinition::AddedToken token = TANDEM_TRY(parse_added_token(node));
    if (!contents.insert(token.content).second) {
      return node.error(Code::kInvalidArgument,
                        "content " + in_quotes(token.content) + " is in the list twice");
    }
    if (!ids.insert(token.id).second) {
      return node.error(Code::kInvalidArgument,
                        "id " + std::to_string(token.id) + " is in the list twice");
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The ids of added tokens and of the vocabulary agree, or one of them would decode wrongly.
class AddedTokenIds {
 public:
  explicit AddedTokenIds(const std::vector<TokenizerDefinition::AddedToken>& tokens) {
    for (const TokenizerDefinition::AddedToken& token : tokens) {
      by_content_.emplace(token.content, token.id);
      by_id_.emplace(token.id, token.content);
    }
  }

  bool holds(const std::string& content) const { return by_content_.contains(content); }

  Result<void> check(const JsonNode& vocabulary, const std::string& key, TokenId id) const {
    const auto content = by_content_.find(key);
    const auto other = by_id_.find(id);
    const bool is_other_id = content != by_content_.end() && content->second != id;
    const bool is_other_content = other != by_id_.end() && other->second != key;
    if (is_other_id || is_other_content) {
      return vocabulary.error(
          Code::kInvalidArgument,
          in_quotes(key) + " has id " + std::to_string(id) + ", but added_tokens says otherwise");
    }
    return {};
  }

 private:
  TokenIds by_content_;
  std::unordered_map<TokenId, std::string> by_id_;
};

// Fills tokens and byte_tokens; returns the ids by bytes.
Result<TokenIds> parse_vocabulary(const JsonNode& model, TokenizerDefinition& definition) {
  const JsonNode vocabulary = TANDEM_TRY(model.member("vocab"));
  TANDEM_TRY(vocabulary.require_object());
  const AddedTokenIds added(definition.added_tokens);
  TokenIds ids;
  std::unordered_set<TokenId> seen;
  ids.reserve(vocabulary.value().size());
  seen.reserve(vocabulary.value().size());
  definition.tokens.reserve(vocabulary.value().size());
  for (const auto& [key, value] : vocabulary.value().items()) {
    // The path of an entry is only put together for an error: there are very many entries.
    if (!value.is_number_integer() || value < 0 || value > kIdMax) {
      return vocabulary.error(
          Code::kInvalidArgument,
          in_quotes(key) + " must have an integer from 0 to " + std::to_string(kIdMax));
    }
    const auto id = value.template get<TokenId>();
    if (!seen.insert(id).second) {
      return vocabulary.error(
          Code::kInvalidArgument,
          in_quotes(key) + " has id " + std::to_string(id) + ", which another token has too");
    }
    TANDEM_TRY(added.check(vocabulary, key, id));
    std::optional<std::string> bytes = bytes_of_spelling(key);
    if (bytes.has_value() && !bytes->empty()) {
      ids.emplace(*bytes, id);
      definition.tokens.push_back({id, std::move(*bytes)});
    } else if (!added.holds(key)) {
      return vocabulary.error(Code::kInvalidArgument,
                              in_quotes(key) + " is not spelled in the byte-level alphabet");
    }
  }
  for (size_t byte = 0; byte < definition.byte_tokens.size(); ++byte) {
    const auto found = ids.find(std::string(1, static_cast<char>(byte)));
    if (found == ids.end()) {
      return vocabulary.error(
          Code::kInvalidArgument,
          "has no token for the single byte " + std::to_string(byte) + "; all 256 are needed");
    }
    definition.byte_tokens[byte] = found->second;
  }
  return ids;
}

struct MergeSpelling {
  std::string_view left;
  std::string_view right;
};

// A merge is ["a", "b"], or "a b" in older files.
std::optional<MergeSpelling> spelling_of(const nlohmann::json& merge) {
  if (merge.is_array()) {
    if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) return std::nullopt;
    return MergeSpelling{merge[0].get_ref<const std::string&>(),
                         merge[1].get_ref<const std::string&>()};
  }
  if (!merge.is_string()) return std::nullopt;
  const std::string_view text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return MergeSpelling{text.substr(0, space), text.substr(space + 1)};
}

Result<void> parse_merges(const JsonNode& model, const TokenIds& ids,
                          TokenizerDefinition& definition) {
  const JsonNode merges = TANDEM_TRY(model.member("merges"));
  const size_t count = TANDEM_TRY(merges.array_size());
  definition.merges.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const std::optional<MergeSpelling> spelling = spelling_of(merges.value()[i]);
    if (!spelling.has_value()) {
      return merges.element(i).error(Code::kInvalidArgument,
                                     "is no pair of tokens, expected [\"a\", \"b\"] or \"a b\"");
    }
    const std::optional<std::string> left = bytes_of_spelling(spelling->left);
    const std::optional<std::string> right = bytes_of_spelling(spelling->right);
    const auto find = [&](const std::optional<std::string>& bytes) {
      return bytes.has_value() ? ids.find(*bytes) : ids.end();
    };
    const auto left_id = find(left);
    const auto right_id = find(right);
    if (left_id == ids.end() || right_id == ids.end()) {
      return merges.element(i).error(
          Code::kInvalidArgument,
          in_quotes(left_id == ids.end() ? spelling->left : spelling->right) +
              " is not in model.vocab");
    }
    const auto merged_id = ids.find(*left + *right);
    if (merged_id == ids.end()) {
      return merges.element(i).error(
          Code::kInvalidArgument,
          "merges into " + in_quotes(std::string(spelling->left) + std::string(spelling->right)) +
              ", which is not in model.vocab");
    }
    definition.merges.push_back({left_id->second, right_id->second, merged_id->second});
  }
  return {};
}

// The library reports syntax errors by exceptions only; they end here.
Result<nlohmann::json> parse_document(std::string_view text) {
  // The library takes a zero byte for the end of the text and would ignore all that follows.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return make_error(Code::kInvalidArgument,
                      "is not valid JSON at byte " + std::to_string(zero + 1));
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& failure) {
    return make_error(Code::kInvalidArgument,
                      "is not valid JSON at byte " + std::to_string(failure.byte));
  } catch (const nlohmann::json::exception&) {
    return make_error(Code::kInvalidArgument, "is not valid JSON: a number is too large");
  }
}

Result<TokenizerDefinition> parse_root(const JsonNode& root) {
  TokenizerDefinition definition;
  TANDEM_TRY(root.require_object());
  definition.normalizes_nfc = TANDEM_TRY(parse_normalizer(root));
  definition.split_rule = TANDEM_TRY(parse_pre_tokenizer(root));
  TANDEM_TRY(check_ends(root));
  definition.added_tokens = TANDEM_TRY(parse_added_tokens(root));
  const JsonNode model = TANDEM_TRY(root.member("model"));
  TANDEM_TRY(check_model_options(model));
  const TokenIds ids = TANDEM_TRY(parse_vocabulary(model, definition));
  TANDEM_TRY(parse_merges(model, ids, definition));
  return definition;
}

}  // namespace

Result<TokenizerDefinition> parse_tokenizer_json(std::string_view json) {
  const std::string kContext = "tokenizer.json";
  const Result<nlohmann::json> document = parse_document(json);
  if (!document.ok()) return with_context(document.error(), kContext);
  Result<TokenizerDefinition> definition = parse_root(JsonNode(*document, ""));
  if (!definition.ok()) return with_context(definition.error(), kContext);
  return definition;
}

}  // namespace tandem::text
