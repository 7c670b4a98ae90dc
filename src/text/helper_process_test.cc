// Goal: whatever the program on the other side does, an exchange ends in time with its answer or
// one Error.
// Method: small Python programs that answer, end, stay silent, answer too much or in part.
#include "text/helper_process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace tandem::text {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kRead = R"(
import os, sys, time
def read():
    return sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), 'little'))
def write(data, length=None):
    header = (len(data) if length is None else length).to_bytes(4, 'little')
    sys.stdout.buffer.write(header + data)
    sys.stdout.buffer.flush()
)";

Result<std::string> exchange_with(const std::string& program, const std::string& request,
                                  milliseconds time = milliseconds(5000)) {
  HelperProcess process = TANDEM_TRY(
      HelperProcess::start(kRead + program, steady_clock::now() + std::chrono::seconds(20)));
  return process.exchange(request, steady_clock::now() + time, 1u << 24);
}

Code code_of(const Result<std::string>& answer) {
  return answer.ok() ? Code::kInternal : answer.error().code;
}

TEST(HelperProcess, AnswersFramesOfAnySize) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4'000'000}}) {
    const std::string request(size, 'x');
    const auto answer = exchange_with("while True: write(read())", request);
    ASSERT_TRUE(answer.ok()) << answer.error().what;
    EXPECT_EQ(*answer, request);
  }
}

TEST(HelperProcess, SeesTheEndOfTheProcess) {
  EXPECT_EQ(code_of(exchange_with("os._exit(3)", "x")), Code::kUnavailable);
  EXPECT_EQ(code_of(exchange_with("read(); os.abort()", "x")), Code::kUnavailable);
  EXPECT_EQ(code_of(exchange_with("read(); write(b'part', 100); os._exit(0)", "x")),
            Code::kUnavailable);
}

TEST(HelperProcess, KeepsTheDeadline) {
  const std::string large(8'000'000, 'x');
  const auto before = steady_clock::now();
  const milliseconds time(200);
  EXPECT_EQ(code_of(exchange_with("time.sleep(60)", "x", time)), Code::kDeadlineExceeded);
  EXPECT_EQ(code_of(exchange_with("time.sleep(60)", large, time)), Code::kDeadlineExceeded);
  EXPECT_EQ(code_of(exchange_with("write(b'part', 100); time.sleep(60)", "x", time)),
            Code::kDeadlineExceeded);
  EXPECT_LT(steady_clock::now() - before, std::chrono::seconds(30));
}

TEST(HelperProcess, RefusesALongAnswerWithoutReadingIt) {
  EXPECT_EQ(code_of(exchange_with("write(b'', 2**31); time.sleep(60)", "x")),
            Code::kResourceExhausted);
}

TEST(HelperProcess, InheritsNothing) {
  const auto answer = exchange_with(
      "read(); fds = [n for n in os.listdir('/proc/self/fd') if int(n) > 2]\n"
      "write(repr((len(fds), dict(os.environ))).encode())",
      "");
  ASSERT_TRUE(answer.ok()) << answer.error().what;
  // The one file is the listing itself.
  EXPECT_EQ(*answer, "(1, {'LC_ALL': 'C.UTF-8'})");
}

}  // namespace
}  // namespace tandem::text
