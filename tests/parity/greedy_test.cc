// Goal: greedy answers are token for token those of transformers in f32.
// Method: all chats of validation.json up to their last answer, 64 at a time through the engine's
// loop, to a stop token or 128 tokens; the goldens hold every token.
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>

#include "engine/engine_core.h"
#include "engine/model_runner.h"
#include "tests/parity/test_checkpoint.h"
#include "tests/parity/validation_texts.h"

namespace tandem::parity {
namespace {

constexpr uint32_t kLengthMax = 2048;
constexpr uint32_t kNewTokensMax = 128;

/// The transcript up to where its last answer starts, an empty thought included.
std::string prompt_of(const std::string& transcript) {
  const std::string assistant = "<|im_start|>assistant\n";
  const std::string no_thought = "<think>\n\n</think>\n\n";
  size_t end = transcript.rfind(assistant) + assistant.size();
  if (transcript.compare(end, no_thought.size(), no_thought) == 0) end += no_thought.size();
  return transcript.substr(0, end);
}

struct Chosen {
  TokenId token;
  float gap;  // to the second most likely, in logits
};

class Collector final : public engine::EventSink {
 public:
  void on_events(std::span<engine::Event> events) override {
    for (const engine::Event& event : events) {
      for (const engine::GeneratedToken& token : event.tokens) {
        answers[event.id.value].push_back(
            {token.token, token.top.at(0).logprob - token.top.at(1).logprob});
      }
      if (event.error) ADD_FAILURE() << event.error->what;
      finished += event.finish ? 1 : 0;
    }
  }
  std::map<uint64_t, std::vector<Chosen>> answers;
  size_t finished = 0;
};

std::map<uint64_t, std::vector<Chosen>> answer(const ValidationTexts& texts,
                                               const std::vector<int32_t>& stop_tokens) {
  auto checkpoint = TestCheckpoint::load(kTinyMoe, DType::kF32, kLengthMax).value();
  const auto vocabulary = static_cast<uint32_t>(checkpoint.model->config().vocab_size);
  const engine::Limits limits{.model_length_max = kLengthMax,
                              .pages_total = 2048,
                              .vocabulary_size = vocabulary,
                              .tokenizer_size = vocabulary};
  auto runner = engine::ModelRunner::create(*checkpoint.device, *checkpoint.model,
                                            {.limits = limits, .kv_dtype = DType::kF32})
                    .value();
  auto core =
      engine::EngineCore::create({.limits = limits, .now_us = [] { return int64_t{1}; }}, *runner)
          .value();
  Collector sink;
  for (size_t i = 0; i < texts.chat.size(); ++i) {
    engine::Request request{.id = {i}, .tokens_max = kNewTokensMax};
    request.prompt = texts.tokens_of(prompt_of(texts.chat[i]));
    request.sampling.temperature = 0;
    request.sampling.logprobs_count = 2;
    request.stop_tokens.assign(stop_tokens.begin(), stop_tokens.end());
    core->accept(std::move(request), sink, 0);
  }
  while (core->step()) {
  }
  EXPECT_EQ(sink.finished, texts.chat.size());
  return sink.answers;
}

TEST(LongGreedy, AnswersAreThoseOfTransformers) {
  const auto golden = GoldenFile::open(kGolden + "tiny-moe/greedy.safetensors").value();
  const std::vector<int32_t> tokens = golden.integers("tokens");
  const std::vector<int32_t> lengths = golden.integers("lengths");
  const std::vector<float> gaps = golden.floats("gaps");
  const ValidationTexts texts = ValidationTexts::open().value();
  ASSERT_EQ(texts.chat.size(), lengths.size());
  ASSERT_EQ(tokens.size(), gaps.size());

  const auto answers = answer(texts, golden.integers("stop_tokens"));
  size_t start = 0;
  int different = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto length = static_cast<size_t>(lengths[i]);
    const std::vector<Chosen>& ours = answers.at(i);
    size_t same = 0;
    while (same < length && same < ours.size() && ours[same].token == tokens[start + same]) ++same;
    if (same < length || same < ours.size()) {
      ++different;
      ADD_FAILURE() << "chat " << i << " differs at token " << same << " of " << length
                    << ": gap to the second token here "
                    << (same < ours.size() ? ours[same].gap : -1.0f) << ", in transformers "
                    << (same < length ? gaps[start + same] : -1.0f);
    }
    start += length;
  }
  printf("greedy: %d of %zu chats differ, %zu tokens\n", different, lengths.size(), tokens.size());
}

}  // namespace
}  // namespace tandem::parity
