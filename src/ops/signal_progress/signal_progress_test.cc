// Goal: who sees the value sees what the stream and its team wrote before it.
// Method: a stream fills rows (embed, three threads) and raises the counter; a reader beside it
// looks at every row that the counter promises. The thread sanitizer would see a missing order.
#include "ops/signal_progress/signal_progress.h"

#include <atomic>
#include <thread>

#include "ops/embed/embed.h"
#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

TEST(SignalProgress, PublishesWhatWasWrittenBefore) {
  constexpr int64_t kRounds = 300;
  constexpr int64_t kHidden = 64;
  constexpr uint64_t kFirst = uint64_t{1} << 40;  // more than 32 bits
  Random random(81);
  std::vector<float> row = random.normal(kHidden);
  const AnyTensor table{.data = row.data(), .dtype = DType::kF32, .rank = 2, .shape = {1, kHidden}};
  const std::vector<int32_t> tokens(3, 0);
  Matrix<float> out(3 * kRounds, kHidden);
  alignas(64) uint64_t counter = 0;

  std::jthread reader([&] {
    uint64_t seen = 0;
    while (seen < kFirst + kRounds - 1) {
      seen = std::atomic_ref(counter).load(std::memory_order_acquire);
      if (seen == 0) continue;
      const auto rows = static_cast<int64_t>(seen - kFirst + 1) * 3;
      for (int64_t r = std::max<int64_t>(0, rows - 6); r < rows; ++r) {
        ASSERT_EQ(std::memcmp(out.row(r), row.data(), kHidden * sizeof(float)), 0) << r;
      }
    }
  });
  Cpu cpu(3);
  for (int64_t round = 0; round < kRounds; ++round) {
    const TensorView<float, 2> rows{out.row(3 * round), {3, kHidden}, out.view().row_stride};
    ASSERT_TRUE(embed(*cpu.stream, {.tokens = view_of(tokens), .table = table, .out = rows}).ok());
    ASSERT_TRUE(
        signal_progress(*cpu.stream, {.counter = TensorView<uint64_t, 1>::make(&counter, {1}),
                                      .value = kFirst + static_cast<uint64_t>(round)})
            .ok());
  }
  reader.join();
  EXPECT_EQ(counter, kFirst + kRounds - 1);
}

}  // namespace
}  // namespace tandem::ops
