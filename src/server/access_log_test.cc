// Goal: each answered request leaves one log line that says who, what, how long and how many
// tokens, and nothing of what was asked or answered; probes leave none unless wanted.
// Method: lines of made-up answers; then the whole server, with the log caught in a string.
#include "server/access_log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "server/testing/server_fixture.h"

namespace tandem::server {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(AccessLine, OfAClientThatLeftIs499) {
  EXPECT_EQ(access_line({.method = "POST",
                         .path = "/v1/completions",
                         .request_id = "r-1",
                         .status = 200,
                         .client_gone = true,
                         .duration = std::chrono::milliseconds(41)}),
            "http_request method=POST path=\"/v1/completions\" status=499 duration_ms=41 "
            "request_id=r-1");
}

TEST(AccessLine, CannotBeBrokenByAPath) {
  const std::string line = access_line(
      {.method = "GET", .path = "/a\nhttp_request status=200\x1b[2J\" x", .request_id = "r"});
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  EXPECT_THAT(line, HasSubstr("[2J\\\" x\""));
  EXPECT_LT(
      access_line({.method = "GET", .path = std::string(9000, 'a'), .request_id = "r"}).size(),
      400u);
}

class AccessLogTest : public testing::ServerFixture {
 protected:
  void SetUp() override {
    previous_ = spdlog::default_logger();
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("", sink));
    spdlog::default_logger()->set_pattern("%v");
  }
  /// Ends the server and its thread first, so that the string is complete and at rest.
  std::string log() {
    server_->drain();
    thread_.join();
    return stream_.str();
  }
  void TearDown() override {
    ServerFixture::TearDown();
    spdlog::set_default_logger(previous_);
  }

  std::ostringstream stream_;
  std::shared_ptr<spdlog::logger> previous_;
};

TEST_F(AccessLogTest, CountsTheTokensOfAnAnswerWholeOrStreamed) {
  start({.access_log = AccessLog::kRequests});
  const std::string whole =
      post("/v1/completions", R"({"prompt":"once upon","n":2})", "X-Request-Id: r1\r\n").body;
  const auto usage = Json::parse(whole)["usage"];
  post("/v1/chat/completions", chat_body(R"("stream":true)"), "X-Request-Id: r2\r\n");
  const std::string text = log();
  EXPECT_THAT(text, HasSubstr(fmt::format(
                        "http_request method=POST path=\"/v1/completions\" status=200 "
                        "prompt_tokens={} completion_tokens={} duration_ms=",
                        usage["prompt_tokens"].get<int>(), usage["completion_tokens"].get<int>())));
  EXPECT_THAT(text, HasSubstr("request_id=r1\n"));
  EXPECT_THAT(text, HasSubstr("path=\"/v1/chat/completions\" status=200 prompt_tokens="));
  EXPECT_THAT(text, HasSubstr("request_id=r2\n"));
}

TEST_F(AccessLogTest, SaysNothingOfWhatWasAskedOrAnswered) {
  script = [](const engine::Request&) { return saying("salamander"); };
  start({.access_log = AccessLog::kAll});
  post("/v1/completions", R"({"prompt":"porcupine"})");
  post("/v1/completions", R"({"prompt":"porcupine","temperature":"porcupine"})");
  post("/v1/completions", R"({"prompt":"porcupine)");
  post("/tokenize", R"({"prompt":"porcupine"})");
  const std::string text = log();
  EXPECT_THAT(text, HasSubstr("status=400 prompt_tokens=0 completion_tokens=0"));
  EXPECT_THAT(text, Not(HasSubstr("porcupine")));
  EXPECT_THAT(text, Not(HasSubstr("salamander")));
}

TEST_F(AccessLogTest, LeavesOutProbesUnlessTheyAreWanted) {
  start({.access_log = AccessLog::kRequests});
  for (const char* path : {"/health", "/ready", "/live", "/version", "/metrics"}) get(path);
  get("/v1/models");
  get("/nowhere");
  const std::string text = log();
  EXPECT_THAT(text, MatchesRegex("[^\n]*GET path=\"/v1/models\" status=200[^\n]*\n"
                                 "[^\n]*GET path=\"/nowhere\" status=404[^\n]*\n"));
}

TEST_F(AccessLogTest, HasProbesWhereTheyAreWanted) {
  start({.access_log = AccessLog::kAll});
  get("/health");
  EXPECT_THAT(log(), HasSubstr("path=\"/health\" status=200"));
}

TEST_F(AccessLogTest, IsSilentWhereNoneIsWanted) {
  start({.access_log = AccessLog::kNone});
  get("/health");
  post("/v1/completions", R"({"prompt":"once"})");
  EXPECT_EQ(log(), "");
}

}  // namespace
}  // namespace tandem::server
