#include "io/post_box.h"

#include <utility>

namespace tandem::io {

void PostBox::post(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    if (calls_.size() > 1) return;  // woken already
  }
  executor_.wake(*this);
}

void PostBox::run() {
  {
    const std::lock_guard lock(mutex_);
    running_.swap(calls_);
  }
  for (const auto& call : running_) call();
  running_.clear();
}

}  // namespace tandem::io
