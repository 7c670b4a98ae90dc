// Goal: Result carries a value or an Error and TANDEM_TRY passes errors on unchanged.
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/strong_id.h"

namespace tandem {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return make_error(Code::kInvalidArgument, "odd");
  return x / 2;
}

Result<int> quarter(int x) {
  int h = TANDEM_TRY(half(x));
  return TANDEM_TRY(half(h));
}

Result<void> check_even(int x) {
  TANDEM_TRY(half(x));
  return {};
}

TEST(Result, ValueAndError) {
  EXPECT_EQ(half(4).value(), 2);
  Result<int> odd = half(3);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, Code::kInvalidArgument);
  EXPECT_EQ(odd.error().what, "odd");
  EXPECT_GT(odd.error().line, 0);
}

TEST(Result, TryPassesOn) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).error().what, "odd");
  EXPECT_TRUE(check_even(2).ok());
  EXPECT_EQ(check_even(1).error().what, "odd");
}

TEST(Result, MoveOnlyValue) {
  auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(7); };
  auto use = [&]() -> Result<int> {
    std::unique_ptr<int> p = TANDEM_TRY(make());
    return *p;
  };
  EXPECT_EQ(use().value(), 7);
}

TEST(Result, ContextGoesInFront) {
  EXPECT_EQ(with_context(make_error(Code::kDataLoss, "truncated"), "model.safetensors").what,
            "model.safetensors: truncated");
}

TEST(ResultDeathTest, ReadingTheWrongSideIsADefect) {
  EXPECT_DEATH((void)half(3).value(), "odd");
  EXPECT_DEATH((void)half(2).error(), "holds a value");
}

TEST(StrongId, ComparesWithItsKind) {
  using A = StrongId<struct TagA>;
  EXPECT_LT(A{1}, A{2});
  EXPECT_EQ(std::hash<A>{}(A{3}), std::hash<uint32_t>{}(3));
}

}  // namespace
}  // namespace tandem
