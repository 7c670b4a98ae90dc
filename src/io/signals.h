#pragma once

#include <signal.h>

#include <array>

namespace tandem::io {

/// The signals that libraries like to take for themselves.
inline constexpr std::array kTakenSignals = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};

/// Undoes what libraries did to these signals before main() began: at its start, once.
void reset_signals();

/// Keeps the dispositions of these signals while a library runs that changes them.
class KeptSignals {
 public:
  KeptSignals();
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;
  ~KeptSignals();

 private:
  std::array<struct sigaction, kTakenSignals.size()> kept_;
};

}  // namespace tandem::io
