#include "apps/chat_prompt.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tandem::apps {

Result<std::vector<TokenId>> encode_chat(const ModelFolder& folder, const nlohmann::json& messages,
                                         bool thinking) {
  if (!folder.chat_template) {
    return make_error(Code::kFailedPrecondition,
                      fmt::format("{} has no chat template (chat_template.jinja, or one in "
                                  "tokenizer_config.json); use tandem generate without --chat",
                                  folder.files.folder.string()));
  }
  // A terminal may send bytes that are no text; they become U+FFFD.
  using Json = nlohmann::json;
  const text::RenderedPrompt prompt = TANDEM_TRY(folder.chat_template->render(
      {.messages_json = messages.dump(-1, ' ', false, Json::error_handler_t::replace),
       .tools_json = "",
       .variables_json = thinking ? "" : R"({"enable_thinking": false})"}));
  return prompt.encode(*folder.tokenizer);
}

}  // namespace tandem::apps
