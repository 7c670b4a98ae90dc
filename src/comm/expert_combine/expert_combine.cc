#include "comm/expert_combine/expert_combine.h"

#include <array>

#include "comm/all_reduce/add_rows.h"
#include "comm/expert_combine/weighted_rows.h"

namespace tandem::comm {

Result<ExpertCombine> ExpertCombine::create(SymmetricHeap& heap, Options options) {
  return ExpertCombine(options, TANDEM_TRY(AllReduce::create(
                                    heap, {.floats_max = options.tokens_max * options.hidden,
                                           .kind = WaitKind::kExpertCombine})));
}

ExpertCombine::ExpertCombine(Options options, AllReduce all_reduce)
    : options_(options),
      all_reduce_(std::move(all_reduce)),
      sums_(static_cast<size_t>(options.tokens_max * options.hidden)) {}

Result<void> ExpertCombine::run(Stream& stream, const Args& args) {
  const int64_t tokens = args.y.shape[0];
  TANDEM_CHECK(tokens <= options_.tokens_max, "more tokens than announced");
  TANDEM_CHECK(args.y.shape[1] == options_.hidden, "rows are as wide as announced");
  TANDEM_CHECK(args.y.row_stride == options_.hidden, "y is dense");
  const auto sums = TensorView<float, 2>::make(sums_.data(), {tokens, options_.hidden});
  TANDEM_TRY(weighted_rows(stream, {.rows = reinterpret_cast<const std::byte*>(args.rows.data),
                                    .wire = args.wire,
                                    .row_of = args.row_of,
                                    .expert_ids = args.expert_ids,
                                    .weights = args.weights,
                                    .y = sums}));
  const std::span<float> flat(sums_.data(), static_cast<size_t>(sums.size()));
  TANDEM_TRY(all_reduce_.run(stream, flat, flat));
  if (flat.empty()) return {};
  const std::array<const float*, 2> rows = {args.y.data, flat.data()};
  return add_rows(stream, {.rows = rows, .y = {args.y.data, flat.size()}});
}

}  // namespace tandem::comm
