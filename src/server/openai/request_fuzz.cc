// Goal: no body makes the request parsers crash, hang or return a request outside its own rules.
// Method: libFuzzer; the first byte picks the endpoint, the rest is the body.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/openai/request.h"

using namespace tandem;
using namespace tandem::server::openai;

namespace {

const Rules& rules() {
  static const Rules kRules{.model_names = {"m"},
                            .model_length_max = 100,
                            .vocabulary_size = 50,
                            .n_max = 4,
                            .choices_max = 8};
  return kRules;
}

void check_params(const GenerationParams& params) {
  TANDEM_CHECK(params.n >= 1 && params.n <= rules().n_max);
  TANDEM_CHECK(params.sampling.temperature >= 0);
  TANDEM_CHECK(params.sampling.top_p > 0 && params.sampling.top_p <= 1);
  TANDEM_CHECK(params.sampling.repetition_penalty > 0);
  TANDEM_CHECK(params.stops.size() <= 16);
  for (const auto& bias : params.sampling.logit_bias) {
    TANDEM_CHECK(bias.token >= 0 && bias.token < rules().vocabulary_size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: {
      const auto parsed = parse_chat_request(body, rules());
      if (const auto* request = std::get_if<ChatRequest>(&parsed)) check_params(request->params);
      break;
    }
    case 1: {
      const auto parsed = parse_completion_request(body, rules());
      if (const auto* request = std::get_if<CompletionRequest>(&parsed)) {
        check_params(request->params);
        TANDEM_CHECK(!request->prompts.empty());
      }
      break;
    }
    case 2:
      (void)parse_tokenize_request(body, rules());
      break;
    default:
      (void)parse_detokenize_request(body, rules());
  }
  return 0;
}
