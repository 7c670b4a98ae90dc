#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <string>
#include <utility>

#include "io/socket.h"

namespace tandem::comm {

/// A port that was free just now.
inline io::Endpoint free_endpoint() {
  const auto listener = io::Listener::listen_tcp({"127.0.0.1", 0});
  return {"127.0.0.1", listener->port()};
}

/// One forked rank, to be made while the program has no other thread. `body` returns what is to be
/// told the parent; an empty text is a success.
class RankProcess {
 public:
  explicit RankProcess(const std::function<std::string()>& body) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    process_id_ = ::fork();
    if (process_id_ == 0) {
      const std::string text = body();
      const bool written = ::write(ends[1], text.data(), text.size()) >= 0;
      ::_exit(written && text.empty() ? 0 : 1);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  RankProcess(RankProcess&& other) noexcept
      : process_id_(std::exchange(other.process_id_, -1)), pipe_(std::exchange(other.pipe_, -1)) {}
  ~RankProcess() {
    if (process_id_ < 0) return;
    signal(SIGKILL);
    wait();
  }

  void signal(int number) const { ::kill(process_id_, number); }
  int process_id() const { return process_id_; }

  /// What it told, after its end.
  std::string wait() {
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t n; (n = ::read(pipe_, buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<size_t>(n));
    }
    ::close(pipe_);
    ::waitpid(process_id_, nullptr, 0);
    process_id_ = -1;
    return text;
  }

 private:
  pid_t process_id_ = -1;
  int pipe_ = -1;
};

}  // namespace tandem::comm
