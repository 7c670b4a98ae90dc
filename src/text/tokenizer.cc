#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/splitter.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

MergeTable make_merges(const TokenizerDefinition& definition) {
  MergeTable merges(definition.merges.size());
  uint32_t rank = 0;
  for (const TokenizerDefinition::Merge& merge : definition.merges) {
    merges.insert(merge.left, merge.right, {rank++, merge.merged});
  }
  return merges;
}

// The patterns that are looked for in raw text, or those looked for in normalised text.
AddedTokenMatcher make_matcher(const TokenizerDefinition& definition, bool normalized) {
  std::vector<AddedTokenMatcher::Pattern> patterns;
  for (const TokenizerDefinition::AddedToken& token : definition.added_tokens) {
    if (token.normalized != normalized) continue;
    const bool is_changed = normalized && definition.normalizes_nfc;
    patterns.push_back({.content = is_changed ? to_nfc(token.content) : token.content,
                        .id = token.id,
                        .takes_space_before = token.lstrip,
                        .takes_space_after = token.rstrip});
  }
  return AddedTokenMatcher(std::move(patterns));
}

}  // namespace

struct Tokenizer::Impl {
  // Where the bytes of a token lie in `bytes`. No bytes: the id has no token.
  struct Token {
    size_t offset = 0;
    uint32_t bytes_count = 0;
    bool is_added = false;
    bool is_special = false;
  };

  explicit Impl(const TokenizerDefinition& definition)
      : split_rule(definition.split_rule),
        normalizes_nfc(definition.normalizes_nfc),
        byte_tokens(definition.byte_tokens),
        merges(make_merges(definition)),
        raw_matcher(make_matcher(definition, false)),
        normalized_matcher(make_matcher(definition, true)) {
    for (const TokenizerDefinition::Token& token : definition.tokens) {
      put(token.id, token.bytes);
    }
    for (const TokenizerDefinition::AddedToken& token : definition.added_tokens) {
      Token& record = put(token.id, token.content);
      record.is_added = true;
      record.is_special = token.special;
      added.emplace(token.content, token.id);
    }
  }

  // An added token that is in the vocabulary too takes the place of the latter's spelling.
  Token& put(TokenId id, std::string_view content) {
    const auto index = static_cast<size_t>(id);
    if (index >= tokens.size()) tokens.resize(index + 1);
    tokens[index] = {bytes.size(), static_cast<uint32_t>(content.size())};
    bytes += content;
    return tokens[index];
  }

  const Token* find(TokenId id) const {
    if (id < 0 || static_cast<size_t>(id) >= tokens.size()) return nullptr;
    const Token& token = tokens[static_cast<size_t>(id)];
    return token.bytes_count == 0 ? nullptr : &token;
  }

  void encode_pieces(std::string_view text, BpeEncoder& encoder, std::vector<TokenId>& ids) const {
    while (!text.empty()) {
      const size_t piece_bytes = first_piece_bytes(split_rule, text);
      encoder.encode(text.substr(0, piece_bytes), byte_tokens, ids);
      text.remove_prefix(piece_bytes);
    }
  }

  void encode_segment(std::string_view segment, ControlTokens control, BpeEncoder& encoder,
                      std::vector<TokenId>& ids) const {
    std::string normalized;
    if (normalizes_nfc) {
      normalized = to_nfc(segment);
      segment = normalized;
    }
    if (control == ControlTokens::kPlainText) return encode_pieces(segment, encoder, ids);
    for (const AddedTokenMatcher::Part& part : normalized_matcher.split(segment)) {
      if (part.id == AddedTokenMatcher::Part::kText) {
        encode_pieces(part.text, encoder, ids);
      } else {
        ids.push_back(part.id);
      }
    }
  }

  SplitRule split_rule;
  bool normalizes_nfc;
  std::array<TokenId, 256> byte_tokens;
  MergeTable merges;
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;
  std::vector<Token> tokens;  // [id]
  std::string bytes;          // of all tokens
  std::unordered_map<std::string, TokenId> added;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(std::string_view tokenizer_json) {
  const TokenizerDefinition definition = TANDEM_TRY(parse_tokenizer_json(tokenizer_json));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(definition)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, ControlTokens control) const {
  std::string repaired;
  if (valid_utf8_prefix(text) < text.size()) {
    repaired = to_valid_utf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids;
  BpeEncoder encoder(impl_->merges);
  if (control == ControlTokens::kPlainText) {
    impl_->encode_segment(text, control, encoder, ids);
    return ids;
  }
  for (const AddedTokenMatcher::Part& part : impl_->raw_matcher.split(text)) {
    if (part.id == AddedTokenMatcher::Part::kText) {
      impl_->encode_segment(part.text, control, encoder, ids);
    } else {
      ids.push_back(part.id);
    }
  }
  return ids;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const Impl::Token* token = impl_->find(id);
  if (token == nullptr) return {};
  return std::string_view(impl_->bytes).substr(token->offset, token->bytes_count);
}

bool Tokenizer::contains(TokenId id) const {
  return impl_->find(id) != nullptr;
}

bool Tokenizer::is_special(TokenId id) const {
  const Impl::Token* token = impl_->find(id);
  return token != nullptr && token->is_special;
}

bool Tokenizer::is_added(TokenId id) const {
  const Impl::Token* token = impl_->find(id);
  return token != nullptr && token->is_added;
}

std::optional<TokenId> Tokenizer::added_token(std::string_view content) const {
  const auto found = impl_->added.find(std::string(content));
  if (found == impl_->added.end()) return std::nullopt;
  return found->second;
}

TokenId Tokenizer::vocabulary_size() const {
  return static_cast<TokenId>(impl_->tokens.size());
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!(skip_special && is_special(id))) bytes += token_bytes(id);
  }
  return to_valid_utf8(bytes);
}

}  // namespace tandem::text
