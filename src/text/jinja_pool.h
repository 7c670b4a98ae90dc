#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/helper_process.h"
#include "text/python_json.h"

namespace tandem::text {

/// Renders any template with Jinja2 in `processes_count` helper processes (jinja_helper.py).
/// Processes start when they are first needed. One that misses the deadline, ends, runs out of
/// memory or answers too much is dropped, and the next render starts another; its own render
/// gets the Error. render() may be called from any thread and waits for a free process.
class JinjaPool final : public ChatTemplate {
 public:
  /// Starts one process to find errors in the template at once.
  static Result<std::unique_ptr<ChatTemplate>> create(Options options);

  Result<RenderedPrompt> render(const ChatInput& input) override;

 private:
  using Deadline = HelperProcess::Deadline;

  JinjaPool(Options options, Json special_tokens);

  Result<HelperProcess> start_process() const;
  /// Waits for a free place; what it holds is a process or nothing yet.
  Result<std::optional<HelperProcess>> take_place(Deadline deadline);
  void return_place(std::optional<HelperProcess> process);
  Result<RenderedPrompt> render_with(std::optional<HelperProcess>& process,
                                     const std::string& request) const;
  Deadline deadline_from_now() const;
  size_t answer_bytes_max() const;

  const Options options_;
  const Json special_tokens_;

  std::mutex mutex_;
  std::condition_variable place_is_free_;
  std::vector<std::optional<HelperProcess>> free_places_;  // guarded by mutex_
};

}  // namespace tandem::text
