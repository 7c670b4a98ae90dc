// Goal: any bytes encode and come back as the normal form of the valid text they read as.
// Method: one small tokenizer per split rule; the input is the text, in both control modes.
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/normalize.h"
#include "text/test_tokenizer_json.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using tandem::text::ControlTokens;
using tandem::text::Tokenizer;

std::unique_ptr<Tokenizer> make(bool joins_marks) {
  nlohmann::json json = tandem::text::small_tokenizer_json();
  if (joins_marks) {
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  auto tokenizer = Tokenizer::create(json.dump());
  if (!tokenizer.ok()) abort();
  return std::move(*tokenizer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizers[] = {make(false), make(true)};
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string text = tandem::text::to_valid_utf8(input);
  for (const auto& tokenizer : tokenizers) {
    const auto plain = tokenizer->encode(input, ControlTokens::kPlainText);
    if (tokenizer->decode(plain, true) != tandem::text::to_nfc(text)) abort();
    // Segments between added tokens are normalised apart, so only the form is sure.
    const auto recognised = tokenizer->encode(input, ControlTokens::kRecognise);
    const std::string back = tokenizer->decode(recognised, false);
    if (tandem::text::to_nfc(back) != tandem::text::to_nfc(text)) abort();
  }
  return 0;
}
