#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace tandem::apps {

/// The lines of standard input, and Ctrl-C. One object a process, on the main thread; from its
/// creation to its end the interrupt signal ends nothing by itself.
class Terminal {
 public:
  static Result<Terminal> create();
  Terminal(Terminal&& other) noexcept;
  Terminal& operator=(Terminal&&) = delete;
  ~Terminal();

  /// The next line without its end, after showing `prompt` when a person sits there. Nothing at the
  /// end of input and after Ctrl-C. kInvalidArgument for a line of more than 1 MiB.
  Result<std::optional<std::string>> read_line(const char* prompt);
  /// Whether Ctrl-C was pressed since the last call.
  bool take_interrupt();
  bool is_interactive() const { return interactive_; }

 private:
  explicit Terminal(int interrupts);
  Result<bool> read_more();

  int interrupts_;  // counts Ctrl-C; -1 when moved from
  bool interactive_;
  bool ended_ = false;
  std::string unread_;
};

}  // namespace tandem::apps
