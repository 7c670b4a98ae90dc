#include "apps/signal_thread.h"

#include <pthread.h>

#include <csignal>

namespace tandem::apps {
namespace {

constexpr int kEnd = SIGUSR2;  // for this thread alone

sigset_t awaited_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, kEnd}) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

SignalThread::SignalThread(std::function<void(int count)> on_signal) {
  const sigset_t signals = awaited_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([signals, on_signal = std::move(on_signal)] {
    int count = 0;
    for (int signal = 0; sigwait(&signals, &signal) == 0 && signal != kEnd;) on_signal(++count);
  });
  pthread_setname_np(thread_.native_handle(), "signals");
}

SignalThread::~SignalThread() {
  pthread_kill(thread_.native_handle(), kEnd);
  thread_.join();
}

}  // namespace tandem::apps
