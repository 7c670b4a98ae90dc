// Goal: a layout that makes no sense is refused by the name of its field, two that must not meet
// are told apart field by field with both values, and what is free to differ is not named (field
// cases A11, A17). Method: one valid layout, changed in one way at a time.
#include "kv/kv_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

namespace tandem::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

KvLayout valid_layout() {
  return {.element = KvElement::kBF16,
          .layers = 5,
          .mtp_layers = 1,
          .kv_heads = 4,
          .head_dim = 64,
          .page_tokens = 16,
          .pages_total = 100,
          .rank_heads = KvLayout::even_heads(4, 2)};
}

TEST(KvLayout, HeadsAreSharedOrCopiedEvenly) {
  EXPECT_THAT(KvLayout::even_heads(4, 1), ElementsAre(HeadRange{0, 4}));
  EXPECT_THAT(KvLayout::even_heads(6, 3),
              ElementsAre(HeadRange{0, 2}, HeadRange{2, 4}, HeadRange{4, 6}));
  EXPECT_THAT(KvLayout::even_heads(2, 4),
              ElementsAre(HeadRange{0, 1}, HeadRange{0, 1}, HeadRange{1, 2}, HeadRange{1, 2}));
}

TEST(KvLayout, BytesAre64Bits) {
  KvLayout layout = valid_layout();
  ASSERT_TRUE(validate(layout).ok());
  EXPECT_EQ(layout.token_bytes(), 128u);
  EXPECT_EQ(layout.page_bytes(1), 2u * 16 * 64 * 2);
  layout.pages_total = 1u << 20;
  EXPECT_EQ(layout.pool_bytes(0), uint64_t{1} << 32);
}

TEST(KvLayout, RefusesWhatMakesNoSense) {
  const std::pair<const char*, std::function<void(KvLayout&)>> cases[] = {
      {"layers is 0", [](KvLayout& l) { l.layers = 0; }},
      {"mtp_layers is 5", [](KvLayout& l) { l.mtp_layers = 5; }},
      {"kv_heads is 0", [](KvLayout& l) { l.kv_heads = 0; }},
      {"kv_heads is 4294967295", [](KvLayout& l) { l.kv_heads = UINT32_MAX; }},
      {"head_dim is 1025", [](KvLayout& l) { l.head_dim = 1025; }},
      {"page_tokens is 0", [](KvLayout& l) { l.page_tokens = 0; }},
      {"page_tokens is 4097", [](KvLayout& l) { l.page_tokens = 4097; }},
      {"pages_total is 0", [](KvLayout& l) { l.pages_total = 0; }},
      {"ranks is 0", [](KvLayout& l) { l.rank_heads.clear(); }},
      {"unknown type 9", [](KvLayout& l) { l.element = KvElement{9}; }},
      {"rank 1 holds heads [2, 5) of 4", [](KvLayout& l) { l.rank_heads[1].end = 5; }},
      {"rank 1 holds heads [3, 3) of 4", [](KvLayout& l) { l.rank_heads[1] = {3, 3}; }},
      {"no rank holds head 2", [](KvLayout& l) { l.rank_heads[1].first = 3; }},
  };
  for (const auto& [text, change] : cases) {
    KvLayout layout = valid_layout();
    change(layout);
    const Result<void> checked = validate(layout);
    ASSERT_FALSE(checked.ok()) << text;
    EXPECT_EQ(checked.error().code, Code::kInvalidArgument);
    EXPECT_THAT(checked.error().what, HasSubstr(text));
  }
}

TEST(KvLayout, PagesAndRanksAreFreeOnEitherSide) {
  KvLayout target = valid_layout();
  target.page_tokens = 48;
  target.pages_total = 7;
  target.rank_heads = KvLayout::even_heads(4, 8);
  EXPECT_TRUE(check_match(valid_layout(), target).ok());
}

TEST(KvLayout, NamesEveryFieldThatMustMatchWithBothValues) {
  const KvLayout target{.format = 2,
                        .element = KvElement::kF32,
                        .layers = 6,
                        .mtp_layers = 0,
                        .kv_heads = 8,
                        .head_dim = 128};
  const Result<void> matched = check_match(valid_layout(), target);
  ASSERT_FALSE(matched.ok());
  EXPECT_EQ(matched.error().code, Code::kFailedPrecondition);
  for (const char* text :
       {"format is 1 ([page][kv_head][token][head_dim]) at the source and 2 (unknown here) at the "
        "target",
        "element is bf16 at the source and f32 at the target",
        "layers is 5 at the source and 6 at the target",
        "mtp_layers is 1 at the source and 0 at the target",
        "kv_heads is 4 at the source and 8 at the target",
        "head_dim is 64 at the source and 128 at the target"}) {
    EXPECT_THAT(matched.error().what, HasSubstr(text));
  }
  EXPECT_EQ(layout_mismatches(valid_layout(), target).size(), 6u);
}

}  // namespace
}  // namespace tandem::kv
