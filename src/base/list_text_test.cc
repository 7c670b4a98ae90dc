// Goal: names are listed as a message shows them.
// Method: no, one and several items, an empty name among them, and a view that makes its items.
#include "base/list_text.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

TEST(ListText, HasACommaBetweenItemsOnly) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(list_text(Names{}), "");
  EXPECT_EQ(list_text(Names{"a"}), "a");
  EXPECT_EQ(list_text(Names{"", "b", "c"}), ", b, c");
}

TEST(ListText, TakesAView) {
  const std::vector<int> numbers{3, 20};
  const auto texts =
      numbers | std::views::transform([](int number) { return std::to_string(number); });
  EXPECT_EQ(list_text(texts), "3, 20");
}

}  // namespace
}  // namespace tandem
