// Goal: the end of another process is noticed, whoever waits for it, and a library's hold on
// signals ends when it should. Method: forked children; handlers set and set back.
#include "io/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "io/signals.h"

namespace tandem::io {
namespace {

TEST(ProcessWatch, SeesTheEndBeforeAndAfterItIsAskedFor) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto watch = ProcessWatch::open(child);
  ASSERT_TRUE(watch.ok()) << watch.error().what;
  EXPECT_TRUE(process_exists(child));
  EXPECT_FALSE(watch->has_ended());
  ::kill(child, SIGKILL);
  while (!watch->has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(process_exists(child)) << "nobody has asked for its end yet";
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(watch->has_ended());
  EXPECT_FALSE(process_exists(child));
  const auto late = ProcessWatch::open(child);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kNotFound);
}

TEST(ProcessWatch, FindsAProcessByItsNameOnThisHostOnly) {
  const auto own = own_process_name();
  ASSERT_TRUE(own.ok()) << own.error().what;
  EXPECT_EQ(*own, *own_process_name());
  const auto watch = ProcessWatch::open(*own);
  ASSERT_TRUE(watch.ok()) << watch.error().what;
  EXPECT_FALSE(watch->has_ended());
  const auto code_of = [&](auto change) {
    ProcessName other = *own;
    change(other);
    const auto none = ProcessWatch::open(other);
    return none.ok() ? Code::kInternal : none.error().code;
  };
  EXPECT_EQ(code_of([](ProcessName& name) { name.boot += "0"; }), Code::kNotFound);
  EXPECT_EQ(code_of([](ProcessName& name) { name.id_namespace += 1; }), Code::kNotFound);
  EXPECT_EQ(code_of([](ProcessName& name) { name.started_ticks -= 1; }), Code::kNotFound);
}

void handler(int) {}

bool has_handler() {
  struct sigaction action{};
  ::sigaction(SIGTERM, nullptr, &action);
  return action.sa_handler == handler;
}

TEST(KeptSignals, PutBackWhatWasThere) {
  ::signal(SIGTERM, handler);
  {
    const KeptSignals kept;
    ::signal(SIGTERM, SIG_IGN);
    EXPECT_FALSE(has_handler());
  }
  EXPECT_TRUE(has_handler());
  reset_signals();
  EXPECT_FALSE(has_handler());
}

}  // namespace
}  // namespace tandem::io
