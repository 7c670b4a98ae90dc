#include "apps/sampling_flags.h"

#include <limits>
#include <random>
#include <utility>

#include "apps/number_flags.h"

namespace tandem::apps {

void add_sampling_flags(CLI::App& verb, SamplingOptions& options) {
  verb.add_option("--temperature", options.temperature, "0 takes the most likely token")
      ->check(CLI::Range(0, 1'000'000))
      ->check(a_number());
  verb.add_option("--top-p", options.top_p, "least share of probability that is kept")
      ->check(CLI::Validator(
          [](const std::string& text) -> std::string {
            double value = 0;
            const bool is_share = CLI::detail::lexical_cast(text, value) && value > 0 && value <= 1;
            return is_share ? "" : text + " is not above 0 and at most 1";
          },
          ""));
  verb.add_option("--top-k", options.top_k, "most likely tokens that are kept; 0: all")
      ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()));
  verb.add_option("--seed", options.seed, "the same seed gives the same answer")
      ->check(unsigned_64());
  verb.add_option("--max-tokens", options.tokens_max,
                  "tokens of one answer at most; 0: what the context holds");
}

engine::SamplingParams recommended_sampling(const ModelFolder& folder) {
  const model::GenerationDefaults& own = folder.files.generation;
  engine::SamplingParams sampling;
  sampling.temperature = own.temperature.value_or(sampling.temperature);
  sampling.top_k = own.top_k.value_or(sampling.top_k);
  sampling.top_p = own.top_p.value_or(sampling.top_p);
  sampling.min_p = own.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = own.repetition_penalty.value_or(sampling.repetition_penalty);
  return sampling;
}

engine::Request request_of(const SamplingOptions& options, const ModelFolder& folder,
                           std::vector<TokenId> prompt) {
  engine::Request request;
  engine::SamplingParams& sampling = request.sampling;
  sampling = recommended_sampling(folder);
  sampling.temperature = options.temperature.value_or(sampling.temperature);
  sampling.top_p = options.top_p.value_or(sampling.top_p);
  sampling.top_k = options.top_k.value_or(sampling.top_k);
  std::random_device random;
  sampling.seed = options.seed.value_or(uint64_t{random()} << 32 | random());
  request.prompt = std::move(prompt);
  request.tokens_max = options.tokens_max == 0 ? folder.model_length_max : options.tokens_max;
  request.stop_tokens = folder.stop_tokens;
  return request;
}

}  // namespace tandem::apps
