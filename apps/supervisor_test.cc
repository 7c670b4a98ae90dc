// Goal: children are kept running, with pauses, but not for ever; what they write is printed under
// their names; stopping ends them one after the other, in time, and leaves no zombie.
// Method: shell scripts as children, which print what happens to them; the test waits for lines.
#include "apps/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "io/scratch_folder.h"

namespace tandem::apps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Waits in short pieces: a shell looks at its signals between commands.
constexpr const char* kRun = "echo up; while :; do sleep 0.02; done";
constexpr const char* kRunUntilTold =
    "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done";
constexpr const char* kDeaf = "trap '' TERM; echo up; while :; do sleep 0.02; done";

class SupervisorTest : public ::testing::Test {
 protected:
  static Supervisor::Child child(const std::string& name, const std::string& script) {
    return {name, {"/bin/sh", {"-c", script}}};
  }
  void start(std::vector<Supervisor::Child> children) {
    Supervisor::Options options{.children = std::move(children),
                                .pause_first = milliseconds(1),
                                .pause_max = milliseconds(20)};
    options.on_given_up = [this](const Error& error) {
      const std::lock_guard lock(mutex_);
      given_up_.push_back(error.what);
      changed_.notify_all();
    };
    options.print = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
      changed_.notify_all();
    };
    supervisor_ = Supervisor::start(std::move(options)).value();
  }
  void TearDown() override {
    supervisor_.reset();
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD) << "a zombie";
  }

  size_t count(const std::string& line) { return std::ranges::count(lines_, line); }
  void await(const std::string& line, size_t times = 1) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return count(line) >= times; })) << line;
  }
  std::string await_given_up() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return !given_up_.empty(); }));
    return given_up_.empty() ? "" : given_up_.front();
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::vector<std::string> given_up_;
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, StartsAgainWhatEnds) {
  const io::ScratchFolder folder;
  const std::string runs = (folder.path() / "runs").string();
  start({child("d0", kRun), child("p0", "echo run >> " + runs + "; [ $(wc -l < " + runs +
                                            ") -lt 3 ] && exit 1; " + kRun)});
  await("p0: up");
  await("d0: up");
  EXPECT_EQ(count("p0 ended with exit code 1"), 2u);
  supervisor_->stop(seconds(60));
  EXPECT_EQ(count("d0: up"), 1u);
  EXPECT_THAT(given_up_, ElementsAre());
}

TEST_F(SupervisorTest, StartsAgainWhatIsKilled) {
  start({child("p0", kRun)});
  await("p0: up");
  const auto before = supervisor_->status();
  ASSERT_EQ(before.size(), 1u);
  EXPECT_EQ(before[0].name, "p0");
  EXPECT_EQ(before[0].restarts, 0u);
  kill(before[0].process_id, SIGKILL);
  await("p0: up", 2);
  while (supervisor_->status()[0].restarts == 0) std::this_thread::yield();
  EXPECT_NE(supervisor_->status()[0].process_id, before[0].process_id);
}

TEST_F(SupervisorTest, GivesUpAtOnceOnAWrongCommandLine) {
  start({child("d0", kRunUntilTold), child("p0", "echo --tp: no such flag; exit 2")});
  await("d0: up");
  EXPECT_EQ(await_given_up(), "p0 ended with exit code 2; its last line: --tp: no such flag");
  EXPECT_EQ(count("p0: --tp: no such flag"), 1u);
  supervisor_->stop(seconds(60));
  EXPECT_EQ(count("d0: bye"), 1u) << "the others go on until they are told";
}

TEST_F(SupervisorTest, GivesUpOnWhatEndsAgainAndAgain) {
  start({child("p0", "echo no memory; exit 1")});
  EXPECT_EQ(await_given_up(),
            "p0 ended with exit code 1, 5 times within 60 s; its last line: no memory");
  EXPECT_EQ(count("p0: no memory"), 5u);
}

TEST_F(SupervisorTest, EndsOneAfterTheOther) {
  start({child("d0", kRunUntilTold), child("d1", kRunUntilTold), child("p0", kRunUntilTold)});
  for (const char* up : {"d0: up", "d1: up", "p0: up"}) await(up);
  supervisor_->stop(seconds(60));
  std::vector<std::string> byes = lines();
  std::erase_if(byes, [](const std::string& line) { return !line.ends_with("bye"); });
  EXPECT_THAT(byes, ElementsAre("d0: bye", "d1: bye", "p0: bye"));
  EXPECT_EQ(lines().size(), 6u) << "that they end as they are told is no news";
}

TEST_F(SupervisorTest, KillsWhatDoesNotEndInTime) {
  start({child("d0", kDeaf), child("p0", kRunUntilTold)});
  await("d0: up");
  await("p0: up");
  supervisor_->stop(milliseconds(1500));  // long enough for p0 on a busy machine
  EXPECT_EQ(count("p0: bye"), 1u);
}

TEST_F(SupervisorTest, ASecondStopIsLessPatient) {
  start({child("d0", kDeaf)});
  await("d0: up");
  std::thread first([this] { supervisor_->stop(std::chrono::hours(1)); });
  supervisor_->stop(milliseconds(0));
  first.join();
}

TEST_F(SupervisorTest, PrintsLinesWhole) {
  start({child("p0", "printf 'a\\n\\nb'; printf 'c\\nd'; exit 2")});
  await_given_up();
  std::vector<std::string> printed = lines();
  std::erase_if(printed, [](const std::string& line) { return !line.starts_with("p0: "); });
  EXPECT_THAT(printed, ElementsAre("p0: a", "p0: ", "p0: bc", "p0: d"));
}

TEST_F(SupervisorTest, EndsWhileAChildWaitsForItsNextStart) {
  Supervisor::Options options{.children = {child("p0", "exit 1")},
                              .pause_first = std::chrono::hours(1),
                              .pause_max = std::chrono::hours(1)};
  options.print = [this](std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
    changed_.notify_all();
  };
  supervisor_ = Supervisor::start(std::move(options)).value();
  await("p0 ended with exit code 1");
  supervisor_->stop(seconds(60));
}

TEST_F(SupervisorTest, AChildThatCannotBeStartedIsAnError) {
  Supervisor::Options options{.children = {child("d0", kRun), {"p0", {"/no/such/program", {}}}}};
  options.print = [](std::string_view) {};
  const auto started = Supervisor::start(std::move(options));
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().what, HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace tandem::apps
