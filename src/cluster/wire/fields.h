#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "cluster/wire/worker_message.h"

namespace tandem::cluster::wire {

using Writer = ByteWriter<std::string>;

/// Text for people, cut to what the peer takes. Other texts are either whole or refused.
inline void put_cut_text(Writer& writer, std::string_view text, const WireLimits& limits) {
  writer.put_text(text.substr(0, limits.text_bytes_max));
}

inline void put_token(Writer& writer, TokenId token) {
  writer.put(static_cast<uint32_t>(token));
}

inline TokenId take_token(ByteReader& reader, const WireLimits& limits) {
  const auto token = reader.take<uint32_t>();
  reader.require(token < static_cast<uint32_t>(limits.vocabulary_size));
  return static_cast<TokenId>(token);
}

inline void put_tokens(Writer& writer, const std::vector<TokenId>& tokens) {
  writer.put_list(tokens, [&](TokenId token) { put_token(writer, token); });
}

inline std::vector<TokenId> take_tokens(ByteReader& reader, uint32_t count_max,
                                        const WireLimits& limits) {
  return reader.take_list(count_max, sizeof(TokenId), [&] { return take_token(reader, limits); });
}

}  // namespace tandem::cluster::wire
