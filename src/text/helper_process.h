#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::text {

/// A Python program in a process of its own that answers frames: a 4-byte little-endian length
/// and that many bytes, over one socket that is the child's stdin and stdout. Owns the process and
/// the socket; the destructor kills the one and closes the other. One caller at a time.
///
/// After any error of exchange() the two sides may disagree about where a frame starts, so the
/// owner must drop the object; a new one costs about 0.1 s.
class HelperProcess {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Starts Debian's /usr/bin/python3, isolated from the user's settings and packages, and gives
  /// it the program as the first frame. The child inherits no file, no environment and no signal
  /// mask of this process.
  static Result<HelperProcess> start(std::string_view program, Deadline deadline);
  ~HelperProcess();
  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&& other) noexcept;

  /// Sends a frame and waits for the answer. kDeadlineExceeded, kResourceExhausted (the answer is
  /// longer than answer_bytes_max) or kUnavailable (the process ended).
  Result<std::string> exchange(std::string_view request, Deadline deadline,
                               size_t answer_bytes_max);

  /// False if the process ended or sent something unasked.
  bool is_idle() const;

 private:
  HelperProcess(int pid, int socket) : pid_(pid), socket_(socket) {}

  Result<void> send_frame(std::string_view data, Deadline deadline);
  Result<void> send_bytes(const char* data, size_t size, Deadline deadline);
  Result<void> receive_bytes(char* data, size_t size, Deadline deadline);
  Result<void> wait_for(short events, Deadline deadline);
  Error ended() const;
  void stop();

  int pid_ = -1;
  int socket_ = -1;
};

}  // namespace tandem::text
