#include "apps/answer_stream.h"

#include <cstdio>

namespace tandem::apps {

void AnswerStream::push(const engine::Event& event) {
  const size_t unshown = event.finish == engine::FinishReason::kStop ? 1 : 0;
  for (size_t i = 0; i + unshown < event.tokens.size(); ++i) {
    show(detokenizer_.push(event.tokens[i].token));
  }
  if (!event.finish) return;
  show(detokenizer_.finish());
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

void AnswerStream::show(const std::string& piece) {
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
  text_ += piece;
}

}  // namespace tandem::apps
