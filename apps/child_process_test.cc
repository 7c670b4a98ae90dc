// Goal: a child process is started with what it is given and nothing else, its end is told as it
// was, no zombie stays, and one that asks for it dies with its parent.
// Method: shell scripts as children; for the death of a parent a process in between that dies.
#include "apps/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace tandem::apps {
namespace {

using ::testing::HasSubstr;

ChildProcess shell(const std::string& script, std::vector<std::string> arguments = {}) {
  std::vector<std::string> all{"-c", script, "child"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return ChildProcess::start({"/bin/sh", std::move(all)}).value();
}

bool await_readable(int descriptor) {
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 60'000) == 1;
}

ProcessEnding await_ending(ChildProcess& child) {
  EXPECT_TRUE(await_readable(child.ending_descriptor()));
  return child.ending().value();
}

std::string read_line(ChildProcess& child) {
  std::string text;
  while (text.find('\n') == std::string::npos && await_readable(child.output_descriptor())) {
    text += child.read_output();
  }
  return text;
}

void expect_no_children() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ChildProcess, TellsItsOutputAndItsEnd) {
  {
    ChildProcess child = shell("echo out $1; echo err >&2; exit 7", {"a b"});
    const ProcessEnding ending = await_ending(child);
    EXPECT_EQ(child.read_output(), "out a b\nerr\n");
    EXPECT_EQ(child.output_descriptor(), -1);
    EXPECT_EQ(ending.text(), "exit code 7");
    EXPECT_EQ(child.ending()->text(), "exit code 7") << "also when asked again";
    child.signal(SIGKILL);  // and nobody is hit
  }
  expect_no_children();
}

TEST(ChildProcess, TellsTheSignalThatEndedIt) {
  ChildProcess child = shell("echo ready; kill -STOP $$");
  EXPECT_EQ(read_line(child), "ready\n");
  EXPECT_FALSE(child.ending());
  child.signal(SIGKILL);
  EXPECT_THAT(await_ending(child).text(), HasSubstr("signal 9 ("));
}

TEST(ChildProcess, DiesWithItsObject) {
  {
    ChildProcess child = shell("kill -STOP $$");
  }
  expect_no_children();
}

TEST(ChildProcess, InheritsNoFilesAndNoSignals) {
  const int open_file = dup(STDOUT_FILENO);
  signal(SIGUSR1, SIG_IGN);
  // A shell cannot trap what it inherits ignored.
  ChildProcess child = shell(
      "for i in 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$i ] && echo has $i; done;"
      " trap 'echo heard; exit' USR1; kill -USR1 $$; echo deaf");
  await_ending(child);
  EXPECT_EQ(child.read_output(), "heard\n");
  signal(SIGUSR1, SIG_DFL);
  close(open_file);
}

TEST(ChildProcess, IsInAGroupOfItsOwn) {
  ChildProcess child = shell("kill -STOP $$");
  EXPECT_EQ(getpgid(child.process_id()), child.process_id());
}

TEST(ChildProcess, AProgramThatIsNotThereIsAnError) {
  const auto started = ChildProcess::start({"/no/such/program", {}});
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().what, HasSubstr("cannot start /no/such/program: No such file"));
  expect_no_children();
}

// A process in between starts one that waits for ever and dies at once.
TEST(DieWithParent, KillsTheOrphan) {
  int alive[2];  // closed when the last of the two is gone
  ASSERT_EQ(pipe(alive), 0);
  const pid_t between = fork();
  ASSERT_GE(between, 0);
  if (between == 0) {
    int ready[2];
    if (pipe(ready) != 0) _exit(1);
    const pid_t parent = getpid();
    if (fork() == 0) {
      const bool ok = die_with_parent(parent).ok();
      if (write(ready[1], ok ? "y" : "n", 1) != 1) _exit(1);
      while (true) pause();
    }
    char answer = 0;
    _exit(read(ready[0], &answer, 1) == 1 && answer == 'y' ? 0 : 1);
  }
  close(alive[1]);
  int status = -1;
  ASSERT_EQ(waitpid(between, &status, 0), between);
  EXPECT_EQ(status, 0);
  char none = 0;
  ASSERT_TRUE(await_readable(alive[0])) << "the orphan lives";
  EXPECT_EQ(read(alive[0], &none, 1), 0);
  close(alive[0]);
}

TEST(DieWithParent, NoticesAParentThatIsGone) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(die_with_parent(getppid() + 1).ok() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace tandem::apps
