// Goal: every field of the API is read as documented, and every wrong value is a 4xx that names
// the field at fault.
// Method: tables of bodies; the refused ones state the expected param and code.
#include "server/openai/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::server::openai {
namespace {

using ::testing::HasSubstr;

Rules rules() {
  return {.model_names = {"tiny", "other/name"},
          .model_length_max = 100,
          .vocabulary_size = 50,
          .n_max = 4,
          .choices_max = 8,
          .sampling = {.temperature = 0.6f,
                       .top_k = 20,
                       .top_p = 0.95f,
                       .min_p = 0.05f,
                       .repetition_penalty = 1.1f}};
}

std::string chat_with(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}

std::string completion_with(const std::string& fields) {
  return R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
}

ChatRequest chat(const std::string& body) {
  auto parsed = parse_chat_request(body, rules());
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<ChatRequest>(parsed);
}

CompletionRequest completion(const std::string& body) {
  auto parsed = parse_completion_request(body, rules());
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<CompletionRequest>(parsed);
}

/// A body, or fields of one, that is refused.
struct Case {
  const char* sent;
  const char* param;
  const char* code;
};

template <typename Parsed>
void expect_refused(const Parsed& parsed, const std::string& body, const std::string& param,
                    const std::string& code, int status = 400) {
  const auto* error = std::get_if<ApiError>(&parsed);
  ASSERT_NE(error, nullptr) << body;
  EXPECT_EQ(error->status, status) << body;
  EXPECT_EQ(error->param, param) << body;
  EXPECT_EQ(error->code, code) << body;
  EXPECT_GT(error->message.size(), 10u) << body;
}

TEST(ChatRequest, TakesDefaultsFromTheModel) {
  const ChatRequest request = chat(chat_with(""));
  EXPECT_EQ(request.params.model, "tiny");
  EXPECT_FLOAT_EQ(request.params.sampling.temperature, 0.6f);
  EXPECT_EQ(request.params.sampling.top_k, 20);
  EXPECT_FLOAT_EQ(request.params.sampling.top_p, 0.95f);
  EXPECT_FLOAT_EQ(request.params.sampling.min_p, 0.05f);
  EXPECT_FLOAT_EQ(request.params.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(request.params.sampling.logprobs_count, -1);
  EXPECT_FALSE(request.params.tokens_max.has_value());
  EXPECT_FALSE(request.params.seeded);
  EXPECT_TRUE(request.params.skip_special);
  EXPECT_TRUE(request.input.add_generation_prompt);
  EXPECT_EQ(request.input.tools_json, "");
  EXPECT_EQ(request.input.variables_json, "");
  EXPECT_EQ(request.input.messages_json, R"([{"role":"user","content":"hi"}])");
}

TEST(ChatRequest, ReadsEveryField) {
  const ChatRequest request = chat(chat_with(R"(
    "model":"other/name","temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.1,
    "presence_penalty":-2,"frequency_penalty":2,"repetition_penalty":1.5,"seed":-1,
    "stop":["a","b"],"stop_token_ids":[3,4],"min_tokens":2,"max_tokens":9,
    "max_completion_tokens":7.0,"ignore_eos":true,"logit_bias":{"5":-100,"6":1,"0":2},
    "logprobs":true,"top_logprobs":3,"n":2,"stream":true,"stream_options":{"include_usage":true},
    "include_stop_str_in_output":true,"skip_special_tokens":false,"user":"u","cache_salt":"s",
    "chat_template_kwargs":{"enable_thinking":false},"tool_choice":"auto",
    "tools":[{"type":"function","function":{"name":"f"},"a":1}],"parallel_tool_calls":false,
    "response_format":{"type":"text"},"add_generation_prompt":false,
    "continue_final_message":true,"unknown_field":[1])"));
  const GenerationParams& params = request.params;
  EXPECT_EQ(params.model, "other/name");
  EXPECT_EQ(params.sampling.temperature, 0);
  EXPECT_EQ(params.sampling.top_p, 0.5f);
  EXPECT_EQ(params.sampling.top_k, 0);
  EXPECT_EQ(params.sampling.min_p, 0.1f);
  EXPECT_EQ(params.sampling.presence_penalty, -2);
  EXPECT_EQ(params.sampling.frequency_penalty, 2);
  EXPECT_EQ(params.sampling.repetition_penalty, 1.5f);
  EXPECT_TRUE(params.seeded);
  EXPECT_EQ(params.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(params.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(params.stop_tokens, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(params.tokens_min, 2u);
  EXPECT_EQ(params.tokens_max, 7u);
  EXPECT_TRUE(params.ignore_eos);
  ASSERT_EQ(params.sampling.logit_bias.size(), 3u);
  EXPECT_EQ(params.sampling.logit_bias[0].token, 5);
  EXPECT_EQ(params.sampling.logit_bias[0].bias, -100);
  EXPECT_EQ(params.sampling.logit_bias[2].token, 0);
  EXPECT_EQ(params.sampling.logprobs_count, 3);
  EXPECT_EQ(params.n, 2u);
  EXPECT_TRUE(params.stream);
  EXPECT_TRUE(params.include_usage);
  EXPECT_TRUE(params.include_stop);
  EXPECT_FALSE(params.skip_special);
  EXPECT_EQ(params.cache_salt, "s");
  EXPECT_EQ(request.input.variables_json, R"({"enable_thinking":false})");
  EXPECT_EQ(request.input.tools_json, R"([{"type":"function","function":{"name":"f"},"a":1}])");
  EXPECT_FALSE(request.input.add_generation_prompt);
  EXPECT_TRUE(request.input.continue_final_message);
}

TEST(ChatRequest, NullMeansAbsent) {
  const ChatRequest request = chat(chat_with(
      R"("temperature":null,"stop":null,"n":null,"logprobs":null,"tools":null,"seed":null,
         "stream_options":null,"response_format":null,"tool_choice":null,"audio":null)"));
  EXPECT_FLOAT_EQ(request.params.sampling.temperature, 0.6f);
  EXPECT_EQ(request.params.n, 1u);
}

TEST(ChatRequest, TurnsContentIntoOneString) {
  const ChatRequest request = chat(R"({"messages":[
    {"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},
    {"role":"assistant","tool_calls":[]},
    {"role":"tool","content":"r","tool_call_id":"1"}]})");
  EXPECT_EQ(request.input.messages_json,
            R"([{"role":"system","content":"a\nb"},)"
            R"({"role":"assistant","content":"","tool_calls":[{"id":"1"}]},)"
            R"({"role":"assistant","tool_calls":[],"content":""},)"
            R"({"role":"tool","content":"r","tool_call_id":"1"}])");
}

TEST(ChatRequest, ASaltIsAsLongAsTheCacheCanKeepApart) {
  const auto salted = [](size_t length) {
    return chat_with("\"cache_salt\":\"" + std::string(length, 's') + "\"");
  };
  EXPECT_EQ(chat(salted(256)).params.cache_salt.size(), 256u);
  expect_refused(parse_chat_request(salted(257), rules()), "257 bytes", "cache_salt",
                 "invalid_value");
}

TEST(ChatRequest, WithoutToolChoiceTheModelIsToldOfNoTools) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(chat(chat_with(tools + R"(,"tool_choice":"none")")).input.tools_json, "");
}

TEST(ChatRequest, AToolIsGivenToTheTemplateAsItCame) {
  const std::string tools =
      R"([{"type":"function","function":{"name":"f","parameters":null,"b":1},"a":2},)"
      R"({"function":{"parameters":{"type":"object"},"name":"g"},"type":"function"}])";
  EXPECT_EQ(chat(chat_with("\"tools\":" + tools)).input.tools_json, tools);
}

// long: a table of every field.
TEST(ChatRequest, NamesTheFieldAtFault) {
  const Case cases[] = {
      {R"("model":3)", "model", "invalid_type"},
      {R"("temperature":"hot")", "temperature", "invalid_type"},
      {R"("temperature":-0.1)", "temperature", "invalid_value"},
      {R"("temperature":2.1)", "temperature", "invalid_value"},
      {R"("top_p":0)", "top_p", "invalid_value"},
      {R"("top_p":1.01)", "top_p", "invalid_value"},
      {R"("top_k":-2)", "top_k", "invalid_value"},
      {R"("top_k":1.5)", "top_k", "invalid_value"},
      {R"("top_k":4294967296)", "top_k", "invalid_value"},
      {R"("min_p":1.5)", "min_p", "invalid_value"},
      {R"("presence_penalty":3)", "presence_penalty", "invalid_value"},
      {R"("frequency_penalty":-3)", "frequency_penalty", "invalid_value"},
      {R"("repetition_penalty":1e-9)", "repetition_penalty", "invalid_value"},
      {R"("repetition_penalty":0)", "repetition_penalty", "invalid_value"},
      {R"("repetition_penalty":0.0009)", "repetition_penalty", "invalid_value"},
      {R"("seed":1.5)", "seed", "invalid_value"},
      {R"("seed":18446744073709551615)", "seed", "invalid_value"},
      {R"("stop":3)", "stop", "invalid_type"},
      {R"("stop":["a",3])", "stop[1]", "invalid_type"},
      {R"("stop":"")", "stop", "invalid_value"},
      {R"("stop":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"])", "stop",
       "invalid_value"},
      {R"("stop_token_ids":[50])", "stop_token_ids[0]", "invalid_value"},
      {R"("stop_token_ids":7)", "stop_token_ids", "invalid_type"},
      {R"("max_tokens":0)", "max_tokens", "invalid_value"},
      {R"("max_tokens":-1)", "max_tokens", "invalid_value"},
      {R"("max_tokens":true)", "max_tokens", "invalid_type"},
      {R"("max_completion_tokens":"9")", "max_completion_tokens", "invalid_type"},
      {R"("max_tokens":2,"min_tokens":3)", "min_tokens", "invalid_value"},
      {R"("n":0)", "n", "invalid_value"},
      {R"("n":5)", "n", "invalid_value"},
      {R"("stream":1)", "stream", "invalid_type"},
      {R"("stream_options":{})", "stream_options", "invalid_value"},
      {R"("stream":true,"stream_options":[])", "stream_options", "invalid_type"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage",
       "invalid_type"},
      {R"("logprobs":2)", "logprobs", "invalid_type"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "invalid_value"},
      {R"("top_logprobs":2)", "top_logprobs", "invalid_value"},
      {R"("logit_bias":[1])", "logit_bias", "invalid_type"},
      {R"("logit_bias":{"x":1})", "logit_bias", "invalid_value"},
      {R"("logit_bias":{"50":1})", "logit_bias", "invalid_value"},
      {R"("logit_bias":{"5":101})", "logit_bias.5", "invalid_value"},
      {R"("logit_bias":{"5":"1"})", "logit_bias.5", "invalid_type"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs", "invalid_type"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages",
       "invalid_value"},
      {R"("chat_template_kwargs":{"a":1,"tools":null})", "chat_template_kwargs.tools",
       "invalid_value"},
      {R"("chat_template_kwargs":{"add_generation_prompt":true})",
       "chat_template_kwargs.add_generation_prompt", "invalid_value"},
      {R"("add_generation_prompt":true,"continue_final_message":true)", "add_generation_prompt",
       "invalid_value"},
      {R"("tools":{})", "tools", "invalid_type"},
      {R"("tools":[1])", "tools[0]", "invalid_type"},
      {R"("tools":[{}])", "tools[0].type", "missing_field"},
      {R"("tools":[{}],"tool_choice":"none")", "tools[0].type", "missing_field"},
      {R"("tools":[{"type":1}])", "tools[0].type", "invalid_type"},
      {R"("tools":[{"type":"web_search"}])", "tools[0].type", "unsupported"},
      {R"("tools":[{"type":"function"}])", "tools[0].function", "missing_field"},
      {R"("tools":[{"type":"function","name":"f"}])", "tools[0].function", "missing_field"},
      {R"("tools":[{"type":"function","function":"f"}])", "tools[0].function", "invalid_type"},
      {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name", "missing_field"},
      {R"("tools":[{"type":"function","function":{"name":5}}])", "tools[0].function.name",
       "invalid_type"},
      {R"("tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name",
       "invalid_value"},
      {R"("tools":[{"type":"function","function":{"name":"f"}},
                   {"type":"function","function":{"name":"g","parameters":"{}"}}])",
       "tools[1].function.parameters", "invalid_type"},
      {R"("tool_choice":"required")", "tool_choice", "unsupported"},
      {R"("tool_choice":{"type":"function"})", "tool_choice", "unsupported"},
      {R"("response_format":{"type":"json_object"})", "response_format", "unsupported"},
      {R"("response_format":{"type":"json_schema","json_schema":{}})", "response_format",
       "unsupported"},
      {R"("response_format":"text")", "response_format", "invalid_type"},
      {R"("audio":{"voice":"x"})", "audio", "unsupported"},
      {R"("modalities":["text","audio"])", "modalities", "unsupported"},
      {R"("guided_json":{"type":"object"})", "guided_json", "unsupported"},
      {R"("functions":[{"name":"f"}])", "functions", "unsupported"},
      {R"("allowed_token_ids":[5])", "allowed_token_ids", "unsupported"},
      {R"("truncate_prompt_tokens":1)", "truncate_prompt_tokens", "unsupported"},
      {R"("chat_template":"{{ x }}")", "chat_template", "unsupported"},
      {R"("documents":[{"text":"x"}])", "documents", "unsupported"},
      {R"("lora_path":"x")", "lora_path", "unsupported"},
      {R"("user":5)", "user", "invalid_type"},
      {R"("cache_salt":5)", "cache_salt", "invalid_type"},
      {R"("ignore_eos":"yes")", "ignore_eos", "invalid_type"},
  };
  for (const Case& wrong : cases) {
    const std::string body = chat_with(wrong.sent);
    expect_refused(parse_chat_request(body, rules()), body, wrong.param, wrong.code);
  }
}

/// One token has one key, so that no bias overrides another one unseen.
TEST(ChatRequest, ABiasHasItsTokenAsPlainDigits) {
  for (const std::string key : {"05", "00", "+5", "-0", " 5", "5 ", "5.0", "0x5", "", "50"}) {
    const std::string body = chat_with(R"("logit_bias":{"5":1,")" + key + R"(":2})");
    const auto parsed = parse_chat_request(body, rules());
    expect_refused(parsed, body, "logit_bias", "invalid_value");
    EXPECT_THAT(std::get<ApiError>(parsed).message, HasSubstr("\"" + key + "\""));
  }
}

TEST(ChatRequest, NamesTheMessageAtFault) {
  const Case cases[] = {
      {R"({})", "messages", "missing_field"},
      {R"({"messages":[]})", "messages", "invalid_value"},
      {R"({"messages":"hi"})", "messages", "invalid_type"},
      {R"({"messages":["hi"]})", "messages[0]", "invalid_type"},
      {R"({"messages":[{"content":"a"}]})", "messages[0].role", "missing_field"},
      {R"({"messages":[{"role":1,"content":"a"}]})", "messages[0].role", "invalid_type"},
      {R"({"messages":[{"role":"king","content":"a"}]})", "messages[0].role", "invalid_value"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing_field"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":5}]})",
       "messages[1].content", "invalid_type"},
      {R"({"messages":[{"role":"user","content":["a"]}]})", "messages[0].content[0]",
       "invalid_type"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
       "messages[0].content[0].type", "unsupported"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":1}]}]})",
       "messages[0].content[0].text", "invalid_type"},
      {R"({"messages":[{"role":"assistant","content":"","tool_calls":{}}]})",
       "messages[0].tool_calls", "invalid_type"},
  };
  for (const Case& wrong : cases) {
    expect_refused(parse_chat_request(wrong.sent, rules()), wrong.sent, wrong.param, wrong.code);
  }
}

TEST(ChatRequest, AnUnknownModelIsNotFound) {
  const std::string body = chat_with(R"("model":"gpt-9")");
  expect_refused(parse_chat_request(body, rules()), body, "model", "model_not_found", 404);
}

TEST(ChatRequest, ABodyThatIsNoObjectIsRefused) {
  for (const char* body : {"", "[]", "3", "null", "{\"messages\":", "\"x\"", "{\"a\":\"\xff\"}"}) {
    expect_refused(parse_chat_request(body, rules()), body, "", "invalid_json");
  }
}

TEST(CompletionRequest, ReadsAllFourFormsOfPrompts) {
  const auto one = completion(R"({"prompt":"ab"})");
  EXPECT_EQ(one.prompts, (std::vector<PromptInput>{"ab"}));
  EXPECT_EQ(one.params.tokens_max, 16u);
  EXPECT_EQ(completion(R"({"prompt":[1,2]})").prompts,
            (std::vector<PromptInput>{std::vector<TokenId>{1, 2}}));
  EXPECT_EQ(completion(R"({"prompt":["a",""]})").prompts, (std::vector<PromptInput>{"a", ""}));
  EXPECT_EQ(completion(R"({"prompt":[[1],[2,3]]})").prompts,
            (std::vector<PromptInput>{std::vector<TokenId>{1}, std::vector<TokenId>{2, 3}}));
}

TEST(CompletionRequest, ReadsItsOwnFields) {
  const auto request = completion(completion_with(R"("echo":true,"best_of":1,"suffix":"")"));
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(completion(completion_with(R"("logprobs":0)")).params.sampling.logprobs_count, 0);
  EXPECT_EQ(completion(completion_with(R"("min_tokens":40)")).params.tokens_max, 40u);
}

TEST(CompletionRequest, NamesTheFieldAtFault) {
  const Case cases[] = {
      {R"({})", "prompt", "missing_field"},
      {R"({"prompt":5})", "prompt", "invalid_type"},
      {R"({"prompt":[]})", "prompt", "invalid_value"},
      {R"({"prompt":[1,"a"]})", "prompt[1]", "invalid_value"},
      {R"({"prompt":["a",1]})", "prompt[1]", "invalid_type"},
      {R"({"prompt":[1,50]})", "prompt[1]", "invalid_value"},
      {R"({"prompt":[1,-1]})", "prompt[1]", "invalid_value"},
      {R"({"prompt":[[1],[2.5]]})", "prompt[1][0]", "invalid_value"},
      {R"({"prompt":["1","2","3","4","5","6","7","8","9"]})", "prompt", "invalid_value"},
      {R"({"prompt":["1","2","3"],"n":3})", "n", "invalid_value"},
      {R"({"prompt":"a","suffix":"b"})", "suffix", "unsupported"},
      {R"({"prompt":"a","best_of":2})", "best_of", "unsupported"},
      {R"({"prompt":"a","logprobs":21})", "logprobs", "invalid_value"},
      {R"({"prompt":"a","logprobs":true})", "logprobs", "invalid_type"},
      {R"({"prompt":"a","echo":true,"logprobs":1})", "echo", "unsupported"},
      {R"({"prompt":"a","echo":"x"})", "echo", "invalid_type"},
  };
  for (const Case& wrong : cases) {
    expect_refused(parse_completion_request(wrong.sent, rules()), wrong.sent, wrong.param,
                   wrong.code);
  }
}

TEST(TokenizeRequest, ReadsPromptsChatsAndIds) {
  const auto prompt = parse_tokenize_request(R"({"prompt":"a","return_token_strs":true})", rules());
  EXPECT_EQ(std::get<std::string>(std::get<TokenizeRequest>(prompt).input), "a");
  EXPECT_TRUE(std::get<TokenizeRequest>(prompt).with_strings);
  const auto chat = parse_tokenize_request(chat_with(""), rules());
  EXPECT_TRUE(std::holds_alternative<text::ChatInput>(std::get<TokenizeRequest>(chat).input));
  expect_refused(parse_tokenize_request("{}", rules()), "{}", "prompt", "missing_field");
  const auto ids = parse_detokenize_request(R"({"tokens":[1,2]})", rules());
  EXPECT_EQ(std::get<std::vector<TokenId>>(ids), (std::vector<TokenId>{1, 2}));
  expect_refused(parse_detokenize_request(R"({"tokens":[99]})", rules()), "99", "tokens[0]",
                 "invalid_value");
}

TEST(ApiError, WhatTheServerDoesNotDoIsTheClientsToChange) {
  EXPECT_STREQ(ApiError{.status = 501}.type(), "invalid_request_error");
  EXPECT_STREQ(ApiError{.status = 500}.type(), "internal_error");
}

TEST(ApiError, HasOpenAIsShape) {
  const ApiError error = invalid_field("n", "invalid_value", "too \"large\"");
  EXPECT_EQ(to_json(error), R"({"error":{"message":"too \"large\"","type":"invalid_request_error",)"
                            R"("param":"n","code":"invalid_value"}})");
  const ApiError busy = api_error(make_error(Code::kResourceExhausted, "queue is full"));
  EXPECT_EQ(busy.status, 429);
  EXPECT_GT(busy.retry_after_s, 0);
  EXPECT_STREQ(busy.type(), "rate_limit_error");
  EXPECT_EQ(api_error(make_error(Code::kFailedPrecondition, "draining")).status, 503);
}

}  // namespace
}  // namespace tandem::server::openai
