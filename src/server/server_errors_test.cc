// Goal: whatever goes wrong, in the request or in the engine, the client gets one clear error of
// the right kind and never an answer that looks whole. Method: the whole server over an engine that
// is scripted to refuse and to fail.
#include "server/testing/server_fixture.h"

namespace tandem::server {
namespace {

using testing::FakeEngine;
using ::testing::HasSubstr;
using testing::HttpClient;
using testing::ServerFixture;
using testing::TinyText;

using ServerErrorsTest = ServerFixture;

TEST_F(ServerErrorsTest, MapsTheEnginesRefusals) {
  start();
  struct Case {
    Code code;
    int status;
    const char* type;
    bool retry;
  };
  for (const Case& refused : {Case{Code::kResourceExhausted, 429, "rate_limit_error", true},
                              Case{Code::kFailedPrecondition, 503, "server_overloaded", true},
                              Case{Code::kInvalidArgument, 400, "invalid_request_error", false},
                              Case{Code::kInternal, 500, "internal_error", false}}) {
    for (const std::string fields : {"", R"("stream":true)"}) {
      engine_->refuse(make_error(refused.code, "because"));
      const auto answer = post("/v1/chat/completions", chat_body(fields));
      EXPECT_EQ(answer.status, refused.status);
      EXPECT_EQ(answer.header("Retry-After").empty(), !refused.retry);
      EXPECT_EQ(error_of(answer)["type"], refused.type);
      EXPECT_EQ(error_of(answer)["message"], "because");
    }
  }
}

TEST_F(ServerErrorsTest, AFailureInTheEngineIsAnErrorAndNeverAnAnswer) {
  script = [](const engine::Request&) {
    auto script = saying("Hello, world!");
    script.finish = engine::FinishReason::kError;
    script.error = make_error(Code::kInternal, "a rank is gone");
    return script;
  };
  start();
  const auto answer = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(error_of(answer)["message"], "a rank is gone");
  const Stream result = stream("/v1/chat/completions", chat_body(R"("stream":true)"));
  EXPECT_TRUE(result.done);
  EXPECT_EQ(result.finish_reason, "");
  EXPECT_EQ(result.chunks.back()["error"]["type"], "internal_error");
}

TEST_F(ServerErrorsTest, WhenOneChoiceFailsTheOthersAreCancelled) {
  script = [](const engine::Request& request) {
    auto script = saying("a b c d e f g h i j k l m n");
    if (request.choice_index == 1) {
      script.tokens.resize(2);
      script.finish = engine::FinishReason::kError;
    }
    return script;
  };
  start();
  engine_->hold_after(0);
  HttpClient one = client();
  one.send_request("POST", "/v1/chat/completions", chat_body(R"("n":3)"));
  await([&] { return engine_->running_count() == 3; });
  engine_->hold_after(3);  // more than the failing choice needs, fewer than the others
  const auto answer = one.read_answer();
  EXPECT_GE(answer.status, 500);
  await([&] { return engine_->running_count() == 0; });
  EXPECT_EQ(engine_->cancels_count(), 2u);
}

TEST_F(ServerErrorsTest, RefusesPromptsThatDoNotFit) {
  start();
  std::string words;
  for (int i = 0; i < 200; ++i) words += " 1";
  const auto chat = post("/v1/chat/completions",
                         R"({"messages":[{"role":"user","content":")" + words + R"("}]})");
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(error_of(chat)["code"], "context_length_exceeded");
  EXPECT_EQ(error_of(chat)["param"], "messages");
  const auto second = post("/v1/completions", R"({"prompt":["a",")" + words + R"("]})");
  EXPECT_EQ(error_of(second)["param"], "prompt[1]");
  EXPECT_EQ(error_of(post("/v1/completions", R"({"prompt":""})"))["param"], "prompt");
  EXPECT_TRUE(engine_->submitted().empty());
}

TEST_F(ServerErrorsTest, RefusesBadRequestsWithTheFieldsName) {
  start();
  const auto wrong = post("/v1/chat/completions", chat_body(R"("top_p":7)"));
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(error_of(wrong)["param"], "top_p");
  EXPECT_EQ(post("/v1/chat/completions", chat_body(R"("model":"other")")).status, 404);
  EXPECT_EQ(post("/v1/chat/completions", "{").status, 400);
  EXPECT_EQ(post("/v1/nothing", "{}").status, 404);
  const auto method = get("/v1/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.header("Allow"), "POST");
  EXPECT_EQ(error_of(method)["type"], "invalid_request_error");
  const auto model = post("/v1/models", "{}");
  EXPECT_EQ(model.status, 405);
  EXPECT_EQ(model.header("Allow"), "GET, HEAD");
}

TEST_F(ServerErrorsTest, RefusesOptionsThatMakeNoSense) {
  FakeEngine engine([](const engine::Request&) { return FakeEngine::Script{}; });
  const auto created = Server::create({}, engine, *TinyText::get().tokenizer, nullptr);
  ASSERT_FALSE(created.ok());
  EXPECT_THAT(created.error().what, HasSubstr("model_names"));
}

}  // namespace
}  // namespace tandem::server
