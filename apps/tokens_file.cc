#include "apps/tokens_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/file.h"

namespace tandem::apps {

using Json = nlohmann::json;

Result<std::vector<std::vector<TokenId>>> read_tokens_file(const std::filesystem::path& path) {
  constexpr size_t kFileBytesMax = 64u << 20;
  const Json json = Json::parse(TANDEM_TRY(io::read_file(path, kFileBytesMax)), nullptr, false);
  if (json.is_discarded()) {
    return make_error(Code::kInvalidArgument, fmt::format("{} is not JSON", path.string()));
  }
  const auto wrong =
      make_error(Code::kInvalidArgument,
                 fmt::format("{}: expected {{\"prompts\": [[token ids], ...]}} with integer ids",
                             path.string()));
  if (!json.is_object() || !json.contains("prompts") || !json["prompts"].is_array()) return wrong;
  std::vector<std::vector<TokenId>> prompts;
  for (const Json& prompt : json["prompts"]) {
    if (!prompt.is_array()) return wrong;
    prompts.emplace_back();
    for (const Json& id : prompt) {
      // Read wide: a huge id must be refused, not cut to one that exists.
      if (!id.is_number_integer() || id != Json(id.get<TokenId>())) return wrong;
      prompts.back().push_back(id.get<TokenId>());
    }
  }
  return prompts;
}

}  // namespace tandem::apps
