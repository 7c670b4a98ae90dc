#include "io/signals.h"

#include "base/check.h"

namespace tandem::io {

void reset_signals() {
  for (const int number : kTakenSignals) {
    TANDEM_CHECK(::signal(number, SIG_DFL) != SIG_ERR, "a signal of our list is unknown");
  }
}

KeptSignals::KeptSignals() {
  for (size_t i = 0; i < kept_.size(); ++i) {
    TANDEM_CHECK(::sigaction(kTakenSignals[i], nullptr, &kept_[i]) == 0);
  }
}

KeptSignals::~KeptSignals() {
  for (size_t i = 0; i < kept_.size(); ++i) {
    TANDEM_CHECK(::sigaction(kTakenSignals[i], &kept_[i], nullptr) == 0);
  }
}

}  // namespace tandem::io
