// Goal: no bytes crash Tokenizer::create, and a tokenizer that it makes encodes any text.
// Method: the input is the tokenizer.json. A good corpus starts with the small one of the tests,
// which this fuzzer offers as a base: an input that is a JSON merge patch is applied to it, which
// reaches the code behind the first checks soon.
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/test_tokenizer_json.h"
#include "text/tokenizer.h"

namespace {

void encode_and_decode(std::string_view json, std::string_view text) {
  const auto tokenizer = tandem::text::Tokenizer::create(json);
  if (!tokenizer.ok()) {
    if (tokenizer.error().what.empty()) abort();
    return;
  }
  for (const auto control :
       {tandem::text::ControlTokens::kPlainText, tandem::text::ControlTokens::kRecognise}) {
    const std::vector<tandem::TokenId> ids = (*tokenizer)->encode(text, control);
    tandem::text::Detokenizer detokenizer(**tokenizer, {.skip_special = false});
    std::string streamed;
    for (const tandem::TokenId id : ids) {
      if (!(*tokenizer)->contains(id)) abort();
      streamed += detokenizer.push(id);
    }
    streamed += detokenizer.finish();
    if (streamed != (*tokenizer)->decode(ids, false)) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  encode_and_decode(input, input);

  const nlohmann::json patch = nlohmann::json::parse(input, nullptr, false);
  if (!patch.is_object()) return 0;
  nlohmann::json document = tandem::text::small_tokenizer_json();
  document.merge_patch(patch);
  encode_and_decode(document.dump(), input);
  return 0;
}
