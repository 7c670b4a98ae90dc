#include "tests/parity/validation_texts.h"

#include <nlohmann/json.hpp>

#include "io/file.h"
#include "tests/parity/test_checkpoint.h"

namespace tandem::parity {

Result<ValidationTexts> ValidationTexts::open() {
  constexpr size_t kBytesMax = 1 << 20;
  const std::string file = TANDEM_TRY(io::read_file(kTinyMoe + "/validation.json", kBytesMax));
  const auto json = nlohmann::json::parse(file, nullptr, false);
  ValidationTexts texts;
  texts.chat = json["chat"].get<std::vector<std::string>>();
  texts.prose = json["prose"].get<std::vector<std::string>>();
  const std::string tokenizer = TANDEM_TRY(io::read_file(kTinyMoe + "/tokenizer.json", kBytesMax));
  texts.tokenizer = TANDEM_TRY(text::Tokenizer::create(tokenizer));
  return texts;
}

}  // namespace tandem::parity
