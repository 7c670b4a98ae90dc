#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/server.h"
#include "server/testing/fake_engine.h"
#include "server/testing/http_client.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::server::testing {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path << ": run tests in the root of the repository";
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The real tokenizer and template of the tiny model; loaded once, because it takes a moment.
struct TinyText {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;
  TokenId end_of_turn = 0;

  static TinyText& get() {
    static TinyText* const tiny = new TinyText(load());
    return *tiny;
  }

 private:
  static TinyText load() {
    TinyText tiny;
    auto tokenizer = text::Tokenizer::create(read_file("models/tiny-moe/tokenizer.json"));
    EXPECT_TRUE(tokenizer.ok());
    tiny.tokenizer = std::move(*tokenizer);
    tiny.end_of_turn = tiny.tokenizer->added_token("<|im_end|>").value();
    const auto config = nlohmann::json::parse(read_file("models/tiny-moe/tokenizer_config.json"));
    auto chat_template = text::ChatTemplate::create(
        {.source = config.at("chat_template").get<std::string>(), .special_tokens_json = "{}"});
    EXPECT_TRUE(chat_template.ok());
    tiny.chat_template = std::move(*chat_template);
    return tiny;
  }
};

/// A server on a free port over a FakeEngine that answers `reply` and the end of turn, unless a
/// test sets `script`.
class ServerFixture : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  void start(Server::Options options = {}) {
    options.port = 0;
    options.model_names = {"tiny", "org/alias"};
    options.version = "1.2.3";
    options.model_length_max = 200;
    options.stop_tokens = {TinyText::get().end_of_turn};
    engine_ = std::make_unique<FakeEngine>([this](const engine::Request& r) { return script(r); });
    auto created = Server::create(std::move(options), *engine_, *TinyText::get().tokenizer,
                                  TinyText::get().chat_template.get());
    ASSERT_TRUE(created.ok()) << created.error().what;
    server_ = std::move(*created);
    thread_ = std::thread([this] { server_->run(); });
  }

  void TearDown() override {
    if (!server_) return;
    server_->stop();
    if (thread_.joinable()) thread_.join();
    engine_->release();
    server_.reset();
  }

  static std::vector<TokenId> tokens_of(const std::string& text) {
    return TinyText::get().tokenizer->encode(text, text::ControlTokens::kPlainText);
  }

  /// The reply and then the end of turn.
  static FakeEngine::Script saying(const std::string& reply) {
    FakeEngine::Script script{.tokens = tokens_of(reply)};
    script.tokens.push_back(TinyText::get().end_of_turn);
    return script;
  }

  HttpClient client(int receive_bytes = 0) { return HttpClient(server_->port(), receive_bytes); }

  HttpClient::Answer post(const std::string& path, const std::string& body,
                          const std::string& headers = "") {
    return client().call("POST", path, body, headers);
  }

  Json post_ok(const std::string& path, const std::string& body) {
    const auto answer = post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body, nullptr, false);
  }

  HttpClient::Answer get(const std::string& path) { return client().call("GET", path); }

  /// The data of every event of a stream; comments are left out.
  static std::vector<std::string> events_of(const std::string& body) {
    std::vector<std::string> events;
    size_t at = 0;
    for (size_t end; (end = body.find("\n\n", at)) != body.npos; at = end + 2) {
      const std::string event = body.substr(at, end - at);
      if (event.starts_with("data: ")) events.push_back(event.substr(6));
    }
    EXPECT_EQ(at, body.size()) << "a stream ends with a whole event";
    return events;
  }

  /// Joins the deltas of one choice and checks the order of its events.
  struct Stream {
    std::vector<Json> chunks;
    std::string text;
    std::string finish_reason;
    Json usage;
    bool done = false;
  };

  Stream stream(const std::string& path, const std::string& body, uint32_t index = 0) {
    const auto answer = post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_TRUE(answer.complete);
    Stream result;
    for (const std::string& event : events_of(answer.body)) {
      EXPECT_FALSE(result.done) << "nothing follows [DONE]";
      if (event == "[DONE]") {
        result.done = true;
        continue;
      }
      const Json chunk = Json::parse(event);
      result.chunks.push_back(chunk);
      if (!chunk.contains("choices")) continue;
      if (chunk["choices"].empty()) result.usage = chunk["usage"];
      for (const Json& choice : chunk["choices"]) {
        if (choice["index"] != index) continue;
        EXPECT_EQ(result.finish_reason, "") << "nothing follows the finish reason";
        if (choice.contains("text")) result.text += choice["text"];
        if (choice.contains("delta")) result.text += choice["delta"].value("content", "");
        if (!choice["finish_reason"].is_null()) result.finish_reason = choice["finish_reason"];
      }
    }
    return result;
  }

  Json error_of(const HttpClient::Answer& answer) {
    const Json body = Json::parse(answer.body, nullptr, false);
    EXPECT_TRUE(body.contains("error")) << answer.body;
    return body.value("error", Json::object());
  }

  void await(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "the condition never came true";
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  /// The value of a series on the metrics page, or -1.
  double metric(const std::string& series) {
    const std::string page = "\n" + get("/metrics").body;
    const size_t at = page.find("\n" + series + " ");
    return at == page.npos ? -1 : std::stod(page.substr(at + series.size() + 2));
  }

  static std::string chat_body(const std::string& fields = "") {
    return R"({"messages":[{"role":"user","content":"hi"}],"temperature":0)" +
           (fields.empty() ? "" : "," + fields) + "}";
  }

  std::function<FakeEngine::Script(const engine::Request&)> script = [](const engine::Request&) {
    return saying("Hello, world!");
  };
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace tandem::server::testing
