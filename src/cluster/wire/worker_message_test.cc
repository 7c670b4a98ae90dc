// Goal: what workers and routers say arrives as it was sent, every field of it, and bytes that are
// no such message are refused. Method: a message of every kind with every field set in turn to
// another value: each makes other bytes, and what is read makes the same bytes again, so no field
// is lost or mixed up. Then random changes, every truncation, and every value beyond its limit.
#include "cluster/wire/worker_message.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <set>

namespace tandem::cluster {
namespace {

constexpr WireLimits kLimits{
    .tokens_max = 8, .vocabulary_size = 100, .list_max = 4, .text_bytes_max = 12};

template <typename Value>
using Changes = std::vector<std::function<void(Value&)>>;

const Changes<Submit> kSubmitChanges = {
    [](Submit& s) { s.number = ~0ull; },
    [](Submit& s) { s.group = 7; },
    [](Submit& s) { s.prefill_worker = "p0"; },
    [](Submit& s) { s.request.id = RequestId{1ull << 40}; },
    [](Submit& s) { s.request.choice_index = 2; },
    [](Submit& s) { s.request.prompt = {99, 0, 3}; },
    [](Submit& s) { s.request.sampling.temperature = 0.5f; },
    [](Submit& s) { s.request.sampling.top_k = -5; },
    [](Submit& s) { s.request.sampling.top_p = 0.25f; },
    [](Submit& s) { s.request.sampling.min_p = 0.125f; },
    [](Submit& s) { s.request.sampling.presence_penalty = -1.5f; },
    [](Submit& s) { s.request.sampling.frequency_penalty = 1.5f; },
    [](Submit& s) { s.request.sampling.repetition_penalty = 3.0f; },
    [](Submit& s) { s.request.sampling.seed = 1ull << 63; },
    [](Submit& s) { s.request.sampling.logit_bias = {{4, -100.0f}}; },
    [](Submit& s) { s.request.sampling.logit_bias = {{4, -99.0f}, {5, 1.0f}}; },
    [](Submit& s) { s.request.sampling.logprobs_count = 20; },
    [](Submit& s) { s.request.tokens_max = 17; },
    [](Submit& s) { s.request.tokens_min = 18; },
    [](Submit& s) { s.request.stop_tokens = {1, 2}; },
    [](Submit& s) { s.request.cache_salt = std::string("\0salt", 5); },
    [](Submit& s) { s.request.kv_way = engine::KvWay::kImport; },
    [](Submit& s) { s.request.kv_way = engine::KvWay::kExport; },
};

engine::Event& last(Events& events) {
  return events.events.back();
}

const Changes<Events> kEventsChanges = {
    [](Events& e) { e.events.resize(4); },
    [](Events& e) { last(e).id = RequestId{9}; },
    [](Events& e) { last(e).tokens = {{.token = 5}}; },
    [](Events& e) { last(e).tokens = {{.token = 5, .logprob = -2.0f}, {.token = 6}}; },
    [](Events& e) { last(e).tokens = {{.token = 5, .top = {{1, -1.0f}, {2, -2.0f}}}}; },
    [](Events& e) {
      last(e).tokens = {{.token = 5, .logprob = std::numeric_limits<float>::quiet_NaN()}};
    },
    [](Events& e) { last(e).finish = engine::FinishReason::kStop; },
    [](Events& e) { last(e).finish = engine::FinishReason::kCancelled; },
    [](Events& e) {
      last(e).finish = engine::FinishReason::kError;
      last(e).error = make_error(Code::kInternal, "why");
    },
    [](Events& e) {
      last(e).finish = engine::FinishReason::kError;
      last(e).error = make_error(Code::kInvalidArgument, "why");
    },
    [](Events& e) { last(e).prompt_tokens = 7; },
    [](Events& e) { last(e).cached_tokens = 8; },
    [](Events& e) { last(e).timing.queue_us = 1; },
    [](Events& e) { last(e).timing.prefill_us = 1; },
    [](Events& e) { last(e).timing.decode_us = 1; },
};

engine::EngineStatus& last(Report& report) {
  return report.groups.back();
}

const Changes<Report> kReportChanges = {
    [](Report& r) { r.requests_included = 3; },
    [](Report& r) { r.queued_tokens = 3; },
    [](Report& r) { r.page_tokens = 3; },
    [](Report& r) { r.model_length_max = 3; },
    [](Report& r) { r.draining = true; },
    [](Report& r) { r.groups.clear(); },
    [](Report& r) { r.groups.resize(3); },
    [](Report& r) { last(r).ready = true; },
    [](Report& r) { last(r).reason = "because"; },
    [](Report& r) { last(r).lost_ranks = {"rank 1", ""}; },
    [](Report& r) { last(r).requests_running = 3; },
    [](Report& r) { last(r).requests_waiting = 3; },
    [](Report& r) { last(r).requests_awaiting_kv = 3; },
    [](Report& r) { last(r).pages_used = 3; },
    [](Report& r) { last(r).pages_total = 3; },
    [](Report& r) { last(r).pages_leased = 3; },
    [](Report& r) { last(r).pages_quarantined = 3; },
    [](Report& r) { last(r).steps = 3; },
    [](Report& r) { last(r).preemptions = 3; },
    [](Report& r) { last(r).imported_tokens = 3; },
    [](Report& r) { last(r).prompt_tokens = 3; },
    [](Report& r) { last(r).generated_tokens = 3; },
    [](Report& r) { last(r).prefix_query_tokens = 3; },
    [](Report& r) { last(r).prefix_hit_tokens = 3; },
    [](Report& r) { last(r).ranks = {{.rank = 1}}; },
    [](Report& r) { last(r).ranks = {{.pages_used = 1}}; },
    [](Report& r) { last(r).ranks = {{.pages_total = 1}}; },
    [](Report& r) { last(r).ranks = {{.steps = 1}}; },
    [](Report& r) { last(r).ranks = {{.idle_steps = 1}}; },
    [](Report& r) { last(r).ranks = {{.tokens = 1}}; },
    [](Report& r) { last(r).ranks = {{.expert_pairs = 1}, {}}; },
};

const Changes<Hello> kHelloChanges = {
    [](Hello& h) { h.build = "0.2"; },
    [](Hello& h) { h.fingerprint = "ab"; },
    [](Hello& h) { h.compute = "bf16"; },
    [](Hello& h) { h.vocabulary_size = 51; },
    [](Hello& h) { h.model_length_max = 51; },
    [](Hello& h) { h.layout.format = 2; },
    [](Hello& h) { h.layout.element = kv::KvElement::kF32; },
    [](Hello& h) { h.layout.layers = 3; },
    [](Hello& h) { h.layout.mtp_layers = 1; },
    [](Hello& h) { h.layout.kv_heads = 4, h.layout.rank_heads = {{0, 2}, {2, 4}}; },
    [](Hello& h) { h.layout.head_dim = 3; },
    [](Hello& h) { h.layout.page_tokens = 3; },
    [](Hello& h) { h.layout.pages_total = 3; },
    [](Hello& h) { h.layout.rank_heads = {{0, 1}, {0, h.layout.kv_heads}}; },
};

const Changes<LinkOffer> kOfferChanges = {
    [](LinkOffer& o) { o.link.value = ~0ull; },
    [](LinkOffer& o) { o.name = "d0 rank 1"; },
    [](LinkOffer& o) { o.layout.pages_total = 77; },
    [](LinkOffer& o) { o.ranks[1].address.rails[0] = {std::byte{9}}; },
    [](LinkOffer& o) { o.ranks[0].regions[0].memory.bytes = 1ull << 40; },
    [](LinkOffer& o) { o.ranks[1].regions[1].sidecars.rails[0].key = 77; },
    [](LinkOffer& o) { o.ranks[1].regions.pop_back(); },
    [](LinkOffer& o) { std::swap(o.ranks[0].regions[0].memory, o.ranks[0].regions[0].sidecars); },
};

Submit some_submit() {
  Submit submit;
  submit.request.prompt = {1};
  return submit;
}

kv::KvLayout some_layout() {
  return {.layers = 2,
          .kv_heads = 2,
          .head_dim = 8,
          .page_tokens = 4,
          .pages_total = 10,
          .rank_heads = {{0, 1}, {1, 2}}};
}

Hello some_hello() {
  return {"0.1", "f00d", "f32", 50, 64, some_layout()};
}

LinkOffer some_offer() {
  const LinkOffer::Regions regions{{100, {{1, 2}}}, {200, {{3, 4}}}};
  const LinkOffer::Rank rank{{{{std::byte{1}}}}, {regions, regions}};
  return {handoff::LinkId{5}, "d0", some_layout(), {rank, rank}};
}

Welcome some_welcome() {
  return {{some_layout(), {{{{std::byte{1}}}}, {{{std::byte{2}}}}}}, 3};
}

std::string recode(const WorkerMessage&, std::string_view bytes) {
  const auto again = decode_message(bytes, kLimits);
  return again.ok() ? encode(*again, kLimits) : again.error().what;
}
std::string recode(const WorkerCall&, std::string_view bytes) {
  const auto again = decode_call(bytes, kLimits);
  return again.ok() ? encode(*again) : again.error().what;
}
std::string recode(const Welcome&, std::string_view bytes) {
  const auto again = decode_welcome(bytes, kLimits);
  return again.ok() ? encode(*again) : again.error().what;
}

template <typename Message, typename Value>
void expect_every_field(const Value& value, const Changes<Value>& changes) {
  std::set<std::string> seen = {encode(Message(value))};
  for (size_t i = 0; i < changes.size(); ++i) {
    Value changed = value;
    changes[i](changed);
    const Message message(changed);
    const std::string bytes = encode(message);
    EXPECT_TRUE(seen.insert(bytes).second) << "change " << i << " does not travel";
    EXPECT_EQ(recode(message, bytes), bytes) << "change " << i;
  }
}

TEST(WorkerMessage, EveryFieldTravels) {
  expect_every_field<WorkerMessage>(some_submit(), kSubmitChanges);
  expect_every_field<WorkerMessage>(Events{{{}, {}}}, kEventsChanges);
  expect_every_field<WorkerMessage>(Report{.groups = {{}, {}}}, kReportChanges);
  expect_every_field<WorkerCall>(some_hello(), kHelloChanges);
  expect_every_field<WorkerCall>(some_offer(), kOfferChanges);
  expect_every_field<Welcome>(
      some_welcome(),
      {[](Welcome& w) { w.generation = 4; }, [](Welcome& w) { w.source.layout.layers = 5; },
       [](Welcome& w) { w.source.ranks[1].rails[0] = {std::byte{7}}; },
       [](Welcome& w) { w.process.boot = "b"; }, [](Welcome& w) { w.process.id_namespace = 5; },
       [](Welcome& w) { w.process.started_ticks = 6; }, [](Welcome& w) { w.process.id = 7; }});
  expect_every_field<WorkerMessage>(Mismatched{}, {[](Mismatched& m) { m.prefill_worker = "p"; },
                                                   [](Mismatched& m) { m.reason = "p"; }});
  expect_every_field<WorkerMessage>(CancelRequest{},
                                    {[](CancelRequest& c) { c.request = RequestId{1ull << 50}; }});
  expect_every_field<WorkerMessage>(HandoffBytes{},
                                    {[](HandoffBytes& h) { h.bytes = std::string(10'000, '\0'); }});
  EXPECT_EQ(recode(WorkerMessage(Subscribe{}), encode(Subscribe{})), encode(Subscribe{}));
}

TEST(WorkerMessage, ValuesMeanTheSameOnTheOtherSide) {
  Submit submit = some_submit();
  for (const auto& change : kSubmitChanges) change(submit);
  const auto got = decode_message(encode(submit), kLimits);
  ASSERT_TRUE(got.ok());
  const engine::Request& request = std::get<Submit>(*got).request;
  EXPECT_EQ(request.id, submit.request.id);
  EXPECT_EQ(request.prompt, submit.request.prompt);
  EXPECT_EQ(request.sampling.top_k, -5);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.cache_salt, submit.request.cache_salt);
  EXPECT_EQ(request.kv_way, engine::KvWay::kExport);
  const auto hello = decode_call(encode(some_hello()), kLimits);
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(std::get<Hello>(*hello).layout, some_layout());
}

/// A random message: each of its changes with one chance in two.
template <typename Value>
Value random_value(std::mt19937_64& random, Value value, const Changes<Value>& changes) {
  for (const auto& change : changes) {
    if (random() % 2 == 0) change(value);
  }
  return value;
}

template <typename Message>
void expect_strict(std::mt19937_64& random, const Message& message) {
  const std::string bytes = encode(message);
  ASSERT_EQ(recode(message, bytes), bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_NE(recode(message, bytes.substr(0, size)), bytes.substr(0, size)) << size;
  }
  ASSERT_NE(recode(message, bytes + '\0'), bytes + '\0');
  for (int i = 0; i < 100; ++i) {
    std::string flipped = bytes;
    flipped[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    // Whatever it means now, it has that one meaning, or none.
    const std::string again = recode(message, flipped);
    ASSERT_TRUE(again == flipped || again.starts_with("what a peer sent")) << again;
  }
}

TEST(WorkerMessage, RandomMessagesArriveAndNothingNearThemPasses) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    expect_strict<WorkerMessage>(random, random_value(random, some_submit(), kSubmitChanges));
    // An error needs its finish, which a later change may replace.
    Events events = random_value(random, Events{{{}, {}}}, kEventsChanges);
    if (last(events).error) last(events).finish = engine::FinishReason::kError;
    expect_strict<WorkerMessage>(random, events);
    Report report{.groups = {{}, {}}};
    for (const auto& change : kReportChanges) {
      if (!report.groups.empty() && random() % 2 == 0) change(report);
    }
    expect_strict<WorkerMessage>(random, report);
    expect_strict<WorkerCall>(random, random_value(random, some_hello(), kHelloChanges));
    expect_strict<WorkerCall>(random, random_value(random, some_offer(), kOfferChanges));
    expect_strict(random, some_welcome());
  }
}

template <typename Message, typename Value>
void expect_refused(const Value& value, const Changes<Value>& changes) {
  for (size_t i = 0; i < changes.size(); ++i) {
    Value changed = value;
    changes[i](changed);
    const Message message(changed);
    EXPECT_TRUE(recode(message, encode(message)).starts_with("what a peer sent")) << i;
  }
}

TEST(WorkerMessage, EveryFieldHasItsLimit) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  expect_refused<WorkerMessage>(
      some_submit(),
      {[](Submit& s) { s.request.prompt.clear(); },
       [](Submit& s) { s.request.prompt.assign(9, 1); },
       [](Submit& s) { s.request.prompt = {100}; }, [](Submit& s) { s.request.prompt = {-1}; },
       [](Submit& s) { s.request.stop_tokens.assign(5, 1); },
       [](Submit& s) { s.request.stop_tokens = {100}; },
       [](Submit& s) { s.request.cache_salt = "1234567890123"; },
       [](Submit& s) { s.prefill_worker = "1234567890123"; },
       [](Submit& s) { s.request.sampling.temperature = kNaN; },
       [](Submit& s) { s.request.sampling.top_p = kNaN; },
       [](Submit& s) { s.request.sampling.min_p = kNaN; },
       [](Submit& s) { s.request.sampling.presence_penalty = 1 / 0.0f; },
       [](Submit& s) { s.request.sampling.frequency_penalty = kNaN; },
       [](Submit& s) { s.request.sampling.repetition_penalty = kNaN; },
       [](Submit& s) { s.request.sampling.logit_bias = {{1, kNaN}}; },
       [](Submit& s) { s.request.sampling.logit_bias = {{100, 0.0f}}; },
       [](Submit& s) { s.request.kv_way = static_cast<engine::KvWay>(3); }});
  expect_refused<WorkerMessage>(
      Events{{{}}},
      {[](Events& e) { e.events.resize(5); }, [](Events& e) { last(e).tokens = {{.token = 100}}; },
       [](Events& e) { last(e).tokens.resize(5); },
       [](Events& e) { last(e).tokens = {{.token = 1, .top = {{100, 0.0f}}}}; },
       [](Events& e) { last(e).finish = static_cast<engine::FinishReason>(4); },
       [](Events& e) { last(e).finish = engine::FinishReason::kError; },
       [](Events& e) { last(e).error = make_error(Code::kInternal, "no end"); }});
  expect_refused<WorkerMessage>(
      Report{.groups = {{}}},
      {[](Report& r) { r.groups.resize(5); }, [](Report& r) { last(r).reason = "1234567890123"; },
       [](Report& r) { last(r).ranks.resize(5); },
       [](Report& r) { last(r).ranks = {{.rank = -1}}; }});
  expect_refused<WorkerCall>(
      some_hello(), {[](Hello& h) { h.vocabulary_size = 0; }, [](Hello& h) { h.layout.layers = 0; },
                     [](Hello& h) { h.layout.rank_heads = {{0, 1}}; },
                     [](Hello& h) { h.layout.element = static_cast<kv::KvElement>(3); }});
  expect_refused<WorkerCall>(some_offer(),
                             {[](LinkOffer& o) { o.ranks.pop_back(); },
                              [](LinkOffer& o) { o.ranks[0].regions[0].memory.rails.clear(); }});
  expect_refused<Welcome>(some_welcome(), {[](Welcome& w) { w.source.ranks.pop_back(); }});
}

TEST(WorkerMessage, TextsForPeopleAreCut) {
  const Mismatched sent{"p0", "a reason that is too long"};
  const auto got = decode_message(encode(sent, kLimits), kLimits);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(std::get<Mismatched>(*got).reason, "a reason tha");
}

TEST(WorkerMessage, HellosMatchOrSayAllThatDiffers) {
  const Hello ours = some_hello();
  Hello theirs = ours;
  theirs.model_length_max = 1;
  theirs.layout.page_tokens = 16;
  theirs.layout.pages_total = 3;
  theirs.layout.rank_heads = {{0, 2}};
  EXPECT_TRUE(check_match(ours, theirs).ok());
  theirs.build = "0.2";
  theirs.fingerprint = "cafe";
  theirs.compute = "bf16";
  theirs.vocabulary_size = 51;
  theirs.layout.head_dim = 16;
  theirs.layout.layers = 3;
  const auto refused = check_match(ours, theirs);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(refused.error().what,
            "build: 0.1 decodes, 0.2 prefills; model: f00d decodes, cafe prefills; compute: f32 "
            "decodes, bf16 prefills; vocabulary: 50 decodes, 51 prefills; kv layers: 2 decodes, 3 "
            "prefills; kv head_dim: 8 decodes, 16 prefills");
}

}  // namespace
}  // namespace tandem::cluster
