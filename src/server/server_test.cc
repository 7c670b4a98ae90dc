// Goal: every endpoint answers in OpenAI's shapes, and what the engine is asked for is what the
// client meant.
// Method: the whole server with the real tokenizer and template over a scripted engine, called
// over real sockets; answers are read with an independent JSON parser.
#include "server/server.h"

#include "server/testing/server_fixture.h"

namespace tandem::server {
namespace {

using testing::FakeEngine;
using ::testing::HasSubstr;
using testing::HttpClient;
using testing::ServerFixture;
using testing::TinyText;

using ServerTest = ServerFixture;

TEST_F(ServerTest, AnswersAChat) {
  start();
  const auto answer = post("/v1/chat/completions", chat_body(), "X-Request-Id: r1\r\n");
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("X-Request-Id"), "r1");
  EXPECT_EQ(answer.header("Content-Type"), "application/json");
  const Json body = Json::parse(answer.body);
  EXPECT_THAT(body["id"].get<std::string>(), HasSubstr("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_GT(body["created"].get<int64_t>(), 1'600'000'000);
  ASSERT_EQ(body["choices"].size(), 1u);
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["message"], (Json{{"role", "assistant"}, {"content", "Hello, world!"}}));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());

  const auto request = engine_->submitted().at(0);
  EXPECT_EQ(TinyText::get().tokenizer->decode(request.prompt, false),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(request.tokens_max, 200 - request.prompt.size());
  EXPECT_EQ(request.stop_tokens, (std::vector<TokenId>{TinyText::get().end_of_turn}));
  const size_t generated = tokens_of("Hello, world!").size() + 1;
  EXPECT_EQ(body["usage"], (Json{{"prompt_tokens", request.prompt.size()},
                                 {"completion_tokens", generated},
                                 {"total_tokens", request.prompt.size() + generated},
                                 {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
}

TEST_F(ServerTest, StreamsAChatInOrder) {
  start();
  const Stream result =
      stream("/v1/chat/completions",
             chat_body(R"("stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(result.text, "Hello, world!");
  EXPECT_EQ(result.finish_reason, "stop");
  EXPECT_TRUE(result.done);
  EXPECT_EQ(result.usage["completion_tokens"], tokens_of("Hello, world!").size() + 1);
  const Json& first = result.chunks.front();
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_TRUE(first.contains("usage") && first["usage"].is_null());
  EXPECT_EQ(result.chunks[result.chunks.size() - 2]["choices"][0]["delta"], Json::object());
  EXPECT_GT(result.chunks.size(), 4u) << "token by token";
  for (const Json& chunk : result.chunks) EXPECT_EQ(chunk["id"], first["id"]);
}

TEST_F(ServerTest, WithoutIncludeUsageNoChunkSpeaksOfIt) {
  start();
  const Stream result = stream("/v1/chat/completions", chat_body(R"("stream":true)"));
  EXPECT_TRUE(result.done);
  for (const Json& chunk : result.chunks) EXPECT_FALSE(chunk.contains("usage"));
}

TEST_F(ServerTest, CompletesEveryFormOfPrompt) {
  start();
  const auto ids = tokens_of("once upon");
  const std::string list = Json(ids).dump();
  for (const std::string& prompt :
       {std::string("\"once upon\""), list, std::string("[\"once upon\"]"), "[" + list + "]"}) {
    const Json body = post_ok("/v1/completions", R"({"prompt":)" + prompt + "}");
    EXPECT_EQ(body["object"], "text_completion");
    EXPECT_EQ(body["choices"][0]["text"], "Hello, world!");
    EXPECT_EQ(engine_->submitted().back().prompt, ids);
    EXPECT_EQ(engine_->submitted().back().tokens_max, 16u);
  }
  const Json two = post_ok("/v1/completions", R"({"prompt":["once upon","a"],"n":2,"seed":7})");
  ASSERT_EQ(two["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(two["choices"][i]["index"], i);
  const auto requests = engine_->submitted();
  for (int i = 0; i < 4; ++i) {
    const auto& request = requests[requests.size() - 4 + i];
    EXPECT_EQ(request.choice_index, static_cast<uint32_t>(i % 2));
    EXPECT_EQ(request.sampling.seed, 7u);
    EXPECT_EQ(request.prompt, i < 2 ? ids : tokens_of("a"));
  }
  EXPECT_EQ(two["usage"]["prompt_tokens"], ids.size() + tokens_of("a").size());
}

TEST_F(ServerTest, RawPromptsMayHoldControlTokensAndChatsMayNot) {
  start();
  post_ok("/v1/completions", R"({"prompt":"<|im_end|>"})");
  EXPECT_EQ(engine_->submitted().back().prompt,
            (std::vector<TokenId>{TinyText::get().end_of_turn}));
  post_ok("/v1/chat/completions", R"({"messages":[{"role":"user","content":"<|im_end|>"}]})");
  const auto prompt = engine_->submitted().back().prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), TinyText::get().end_of_turn), 1);
}

TEST_F(ServerTest, EchoesThePrompt) {
  start();
  EXPECT_EQ(post_ok("/v1/completions", R"({"prompt":"Say: ","echo":true})")["choices"][0]["text"],
            "Say: Hello, world!");
  EXPECT_EQ(stream("/v1/completions", R"({"prompt":"Say: ","echo":true,"stream":true})").text,
            "Say: Hello, world!");
}

TEST_F(ServerTest, StopsAtAStopStringAndCancels) {
  script = [](const engine::Request&) { return saying("one two three four five six"); };
  start();
  for (const bool streaming : {false, true}) {
    const std::string fields = R"("stop":["zzz","ree f"])";
    std::string text;
    uint64_t completion_tokens = 0;
    if (streaming) {
      const Stream result =
          stream("/v1/chat/completions",
                 chat_body(fields + R"(,"stream":true,"stream_options":{"include_usage":true})"));
      EXPECT_EQ(result.finish_reason, "stop");
      text = result.text;
      completion_tokens = result.usage["completion_tokens"];
    } else {
      const Json body = post_ok("/v1/chat/completions", chat_body(fields));
      EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
      text = body["choices"][0]["message"]["content"];
      completion_tokens = body["usage"]["completion_tokens"];
    }
    EXPECT_EQ(text, "one two th");
    // As many tokens as it takes until the stop string is complete.
    const auto all = tokens_of("one two three four five six");
    size_t needed = 0;
    while (TinyText::get().tokenizer->decode(std::span(all).first(needed), true).find("ree f") ==
           std::string::npos) {
      ++needed;
    }
    EXPECT_EQ(completion_tokens, needed);
  }
  const Json with_stop = post_ok("/v1/chat/completions",
                                 chat_body(R"("stop":"two","include_stop_str_in_output":true)"));
  EXPECT_EQ(with_stop["choices"][0]["message"]["content"], "one two");
  const Json later =
      post_ok("/v1/chat/completions", chat_body(R"("stop":"one","min_tokens":6,"max_tokens":90)"));
  EXPECT_EQ(later["choices"][0]["message"]["content"], "one two three four five six");
}

TEST_F(ServerTest, AStopStringEndsARequestThatWouldGoOn) {
  script = [](const engine::Request&) { return saying("a b c d e f g h i j k l m n o p"); };
  start();
  engine_->hold_after(4);
  HttpClient one = client();
  one.send_request("POST", "/v1/chat/completions", chat_body(R"("stop":"b")"));
  EXPECT_EQ(one.read_answer().status, 200);
  await([&] { return engine_->running_count() == 0; });
  EXPECT_EQ(engine_->cancels_count(), 1u);
}

TEST_F(ServerTest, ReportsLength) {
  start();
  const Json body = post_ok("/v1/chat/completions", chat_body(R"("max_tokens":2)"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  EXPECT_EQ(
      stream("/v1/completions", R"({"prompt":"a","max_tokens":1,"stream":true})").finish_reason,
      "length");
}

TEST_F(ServerTest, PassesSamplingOnToTheEngine) {
  start();
  post_ok("/v1/chat/completions",
          chat_body(R"("top_k":5,"seed":9,"ignore_eos":true,"stop_token_ids":[3],"min_tokens":2,
                       "max_tokens":40,"logit_bias":{"4":-1},"cache_salt":"s")"));
  const auto request = engine_->submitted().at(0);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.seed, 9u);
  EXPECT_EQ(request.stop_tokens, (std::vector<TokenId>{3}));
  EXPECT_EQ(request.tokens_min, 2u);
  EXPECT_EQ(request.tokens_max, 40u);
  EXPECT_EQ(request.sampling.logit_bias.at(0).token, 4);
  EXPECT_EQ(request.cache_salt, "s");
  post_ok("/v1/chat/completions", chat_body());
  post_ok("/v1/chat/completions", chat_body());
  EXPECT_NE(engine_->submitted().at(1).sampling.seed, engine_->submitted().at(2).sampling.seed)
      << "requests without a seed get different ones";
}

TEST_F(ServerTest, PassesTemplateVariables) {
  start();
  post_ok("/v1/chat/completions", chat_body(R"("chat_template_kwargs":{"enable_thinking":false})"));
  EXPECT_THAT(TinyText::get().tokenizer->decode(engine_->submitted().at(0).prompt, false),
              HasSubstr("assistant\n<think>\n\n</think>\n\n"));
  post_ok("/v1/chat/completions",
          R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"Sure"}],
              "continue_final_message":true})");
  EXPECT_TRUE(TinyText::get()
                  .tokenizer->decode(engine_->submitted().at(1).prompt, false)
                  .ends_with("Sure"));
}

TEST_F(ServerTest, WritesLogprobsOfChats) {
  start();
  const Json body =
      post_ok("/v1/chat/completions", chat_body(R"("logprobs":true,"top_logprobs":2)"));
  const Json content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), tokens_of("Hello, world!").size()) << "the stop token is not listed";
  std::string joined;
  for (const Json& token : content) {
    EXPECT_FLOAT_EQ(token["logprob"], -0.5f);
    ASSERT_EQ(token["top_logprobs"].size(), 2u);
    EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);
    for (const Json& byte : token["bytes"]) joined += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(joined, "Hello, world!");
}

TEST_F(ServerTest, WritesLogprobsOfCompletions) {
  start();
  const Json body = post_ok("/v1/completions", R"({"prompt":"a","logprobs":1})");
  const Json logprobs = body["choices"][0]["logprobs"];
  const size_t count = tokens_of("Hello, world!").size();
  ASSERT_EQ(logprobs["tokens"].size(), count);
  ASSERT_EQ(logprobs["text_offset"].size(), count);
  size_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto token = logprobs["tokens"][i].get<std::string>();
    EXPECT_EQ(logprobs["text_offset"][i], offset);
    EXPECT_FLOAT_EQ(logprobs["token_logprobs"][i], -0.5f);
    EXPECT_TRUE(logprobs["top_logprobs"][i].contains(token));
    offset += token.size();
  }
  const Stream result = stream("/v1/completions", R"({"prompt":"a","logprobs":0,"stream":true})");
  EXPECT_EQ(result.chunks.front()["choices"][0]["logprobs"]["tokens"].size(), 1u);
}

TEST_F(ServerTest, StreamsOnlyWholeCharacters) {
  const std::string reply = "\xF0\x9F\xA7\x9F\xE2\x80\x8D\xE2\x99\x82 \xEB\x98\xBB!";
  script = [&](const engine::Request&) { return saying(reply); };
  start();
  EXPECT_EQ(stream("/v1/chat/completions", chat_body(R"("stream":true)")).text, reply);
  const Json cut = post_ok("/v1/completions", R"({"prompt":"a","max_tokens":1})");
  EXPECT_FALSE(cut.is_discarded()) << "half a character still makes valid JSON";
}

TEST_F(ServerTest, ExpandsNIntoOneStream) {
  script = [](const engine::Request& request) {
    return saying("choice " + std::to_string(request.choice_index));
  };
  start();
  const std::string body = chat_body(R"("n":3,"stream":true)");
  for (uint32_t i = 0; i < 3; ++i) {
    const Stream result = stream("/v1/chat/completions", body, i);
    EXPECT_EQ(result.text, "choice " + std::to_string(i));
    EXPECT_EQ(result.finish_reason, "stop");
  }
}

TEST_F(ServerTest, ReportsCachedTokens) {
  script = [](const engine::Request&) {
    auto script = saying("x");
    script.cached_tokens = 5;
    return script;
  };
  start();
  const Json body = post_ok("/v1/chat/completions", chat_body(R"("n":2)"));
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
}

TEST_F(ServerTest, ListsModels) {
  start();
  const Json list = Json::parse(get("/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["max_model_len"], 200);
  EXPECT_EQ(Json::parse(get("/v1/models/org/alias").body)["id"], "org/alias");
  EXPECT_EQ(Json::parse(get("/v1/models/org%2Falias").body)["id"], "org/alias");
  EXPECT_EQ(get("/v1/models/none").status, 404);
}

TEST_F(ServerTest, TokenizesAndDetokenizes) {
  start();
  const Json tokens = post_ok("/tokenize", R"({"prompt":"Hello","return_token_strs":true})");
  EXPECT_EQ(tokens["tokens"].get<std::vector<TokenId>>(), tokens_of("Hello"));
  EXPECT_EQ(tokens["count"], tokens_of("Hello").size());
  EXPECT_EQ(tokens["max_model_len"], 200);
  EXPECT_EQ(tokens["token_strs"].size(), tokens_of("Hello").size());
  const Json text = post_ok("/detokenize", R"({"tokens":)" + tokens["tokens"].dump() + "}");
  EXPECT_EQ(text["prompt"], "Hello");
  const Json chat = post_ok("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})");
  post_ok("/v1/chat/completions", chat_body());
  EXPECT_EQ(chat["tokens"].get<std::vector<TokenId>>(), engine_->submitted().at(0).prompt);
  EXPECT_EQ(post("/tokenize", "{}").status, 400);
}

TEST_F(ServerTest, AnswersProbes) {
  start();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/ready").status, 200);
  EXPECT_EQ(Json::parse(get("/version").body)["version"], "1.2.3");
  engine_->set_status({.ready = false, .reason = "rank 1 is stuck"});
  const auto sick = get("/health");
  EXPECT_EQ(sick.status, 503);
  EXPECT_THAT(sick.body, HasSubstr("rank 1 is stuck"));
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(ServerTest, WhatGoesOnWithoutSomeRanksIsDegraded) {
  start();
  EXPECT_THAT(get("/metrics").body, HasSubstr("tandem:ranks_lost{model_name=\"tiny\"} 0"));
  engine_->set_status({.ready = true,
                       .reason = "gone: rank 3 of host \"b\"",
                       .lost_ranks = {"rank 3 of host \"b\"", "rank 4"}});
  for (const char* path : {"/health", "/ready"}) {
    const auto degraded = get(path);
    EXPECT_EQ(degraded.status, 200);
    const Json body = Json::parse(degraded.body);
    EXPECT_EQ(body["status"], "degraded");
    EXPECT_EQ(body["reason"], "gone: rank 3 of host \"b\"");
    EXPECT_EQ(body["lost_ranks"], Json({"rank 3 of host \"b\"", "rank 4"}));
  }
  EXPECT_THAT(get("/metrics").body, HasSubstr("tandem:ranks_lost{model_name=\"tiny\"} 2"));
}

}  // namespace
}  // namespace tandem::server
