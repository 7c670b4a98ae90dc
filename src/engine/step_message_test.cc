// Goal: a follower gets the tensors of the leader's step, and refuses what is none. Method: steps
// of several shapes there and back; messages cut, with impossible counts, and with every word in
// turn replaced by one that the limits do not allow.
#include "engine/step_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "cpu/cpu_device.h"
#include "engine/step_memory.h"

namespace tandem::engine {
namespace {

constexpr Limits kLimits{.model_length_max = 18,
                         .sequences_max = 3,
                         .step_tokens_max = 20,
                         .page_tokens = 4,
                         .pages_total = 12,
                         .vocabulary_size = 10};
const StepTensors::Limits kTensors = StepMemory::options_of(kLimits, DType::kF32).tensors();

constexpr uint64_t kPlan = 0x1'9000'0003;  // more than 32 bits
constexpr uint64_t kNumber = 0x2'8000'0007;

template <int Rank>
void expect_equal(const TensorView<const int32_t, Rank>& a,
                  const TensorView<const int32_t, Rank>& b, int64_t columns) {
  ASSERT_EQ(a.shape[0], b.shape[0]);
  for (int64_t r = 0; r < a.shape[0]; ++r) {
    for (int64_t c = 0; c < columns; ++c) EXPECT_EQ(a.row(r)[c], b.row(r)[c]);
  }
}

class StepMessageTest : public testing::Test {
 protected:
  void expect_round_trip(int64_t pages) {
    const model::StepInput sent = tensors_.input();
    const auto bytes = message_.encode({.input = sent, .number = kNumber, .plan_id = kPlan});
    EXPECT_LE(bytes.size(), StepMessage::bytes_max(kTensors));
    const auto step = message_.decode(bytes);
    ASSERT_TRUE(step.ok()) << step.error().what;
    EXPECT_EQ(step->plan_id, kPlan);
    EXPECT_EQ(step->number, kNumber);
    const model::StepInput* got = &step->input;
    expect_equal(sent.tokens, got->tokens, 1);
    expect_equal(sent.positions, got->positions, 1);
    expect_equal(sent.slots, got->slots, 1);
    expect_equal(sent.query_start, got->query_start, 1);
    expect_equal(sent.kv_tokens, got->kv_tokens, 1);
    expect_equal(sent.page_table, got->page_table, pages);
    expect_equal(sent.logits_rows, got->logits_rows, 1);
  }
  std::unique_ptr<cpu::CpuDevice> device_ = cpu::CpuDevice::create({.threads_count = 1}).value();
  StepTensors tensors_ = StepTensors::create(*device_, kTensors).value();
  StepMessage message_{kLimits};
};

TEST_F(StepMessageTest, StepsArriveAsTheyWere) {
  expect_round_trip(0);  // nobody has tokens
  const std::vector<TokenId> tokens = {9, 8, 7, 6, 5, 4, 3, 2, 1};
  const std::vector<PageId> pages = {PageId{7}, PageId{3}, PageId{11}};
  tensors_.append(tokens, 2, pages, 1);
  tensors_.append(std::span(tokens).first(2), 0, pages, 0);
  tensors_.append(std::span(tokens).first(5), 4, std::span(pages).last(2), 1);
  expect_round_trip(1);
}

TEST_F(StepMessageTest, WhatIsNoStepIsRefused) {
  const std::vector<TokenId> tokens = {9, 8, 7};
  const std::vector<PageId> pages = {PageId{7}};
  tensors_.append(tokens, 0, pages, 1);
  const auto bytes = message_.encode({.input = tensors_.input()});
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  EXPECT_FALSE(message_.decode(std::span(copy).first(copy.size() - 4)).ok());
  EXPECT_FALSE(message_.decode(std::span(copy).first(8)).ok());
  for (size_t count = 4; count < 8; ++count) {
    for (int32_t wrong : {-1, 1 << 30}) {
      std::vector<std::byte> spoiled = copy;
      std::memcpy(spoiled.data() + count * sizeof wrong, &wrong, sizeof wrong);
      EXPECT_EQ(message_.decode(spoiled).error().code, Code::kDataLoss);
    }
  }
}

TEST_F(StepMessageTest, WhatIsNotThereIsRefused) {
  const std::vector<TokenId> tokens = {9, 8, 7, 6, 5, 4};
  const std::vector<PageId> pages = {PageId{11}, PageId{0}};
  tensors_.append(tokens, 3, pages, 1);
  tensors_.append(std::span(tokens).first(2), 0, std::span(pages).first(1), 1);
  const auto bytes = message_.encode({.input = tensors_.input()});
  const std::vector<std::byte> copy(bytes.begin(), bytes.end());
  ASSERT_TRUE(message_.decode(copy).ok());
  constexpr size_t kHeaderWords = 8;
  constexpr size_t kUnused = kHeaderWords + 3 * 5 + 3 + 2 + 3;  // the second page of one page
  for (size_t word = kHeaderWords; word < copy.size() / sizeof(int32_t); ++word) {
    for (int32_t wrong : {-1, 12, 48, std::numeric_limits<int32_t>::max()}) {
      std::vector<std::byte> spoiled = copy;
      std::memcpy(spoiled.data() + word * sizeof wrong, &wrong, sizeof wrong);
      EXPECT_EQ(message_.decode(spoiled).ok(), word == kUnused) << word << " is " << wrong;
    }
  }
}

TEST_F(StepMessageTest, NoSequenceIsLongerThanTheModel) {
  const std::vector<TokenId> tokens(kLimits.model_length_max + 1, 3);
  const std::vector<PageId> pages(5, PageId{1});
  tensors_.append(std::span(tokens).first(tokens.size() - 1), 10, pages, 1);
  EXPECT_TRUE(message_.decode(message_.encode({.input = tensors_.input()})).ok());
  tensors_.clear();
  tensors_.append(tokens, 10, pages, 1);  // fits its pages
  EXPECT_EQ(message_.decode(message_.encode({.input = tensors_.input()})).error().code,
            Code::kDataLoss);
}

}  // namespace
}  // namespace tandem::engine
