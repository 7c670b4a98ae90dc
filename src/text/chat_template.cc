#include "text/chat_template.h"

#include <utility>

#include "text/jinja_pool.h"
#include "text/native_qwen3_template.h"

namespace tandem::text {

std::string RenderedPrompt::text() const {
  std::string whole;
  for (const Span& span : spans) whole += span.text;
  return whole;
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(Options options) {
  if (is_qwen3_template(options.source)) {
    return make_native_qwen3_template(options.output_bytes_max);
  }
  return JinjaPool::create(std::move(options));
}

}  // namespace tandem::text
