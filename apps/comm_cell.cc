#include "apps/comm_cell.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "comm/all_gather/all_gather.h"
#include "comm/all_reduce/all_reduce.h"
#include "comm/barrier/barrier.h"
#include "comm/broadcast/broadcast.h"
#include "comm/expert_combine/expert_combine.h"
#include "comm/expert_exchange/expert_exchange.h"
#include "comm/expert_placement.h"
#include "comm/expert_ranges.h"
#include "comm/expert_select/expert_select.h"
#include "comm/gather_blocks/gather_blocks.h"

namespace tandem::apps {
namespace {

using comm::SymmetricHeap;

std::vector<float> values(int64_t count) {
  std::vector<float> made(static_cast<size_t>(count));
  for (size_t i = 0; i < made.size(); ++i) made[i] = 1.0f + static_cast<float>(i % 1000) * 0x1p-10f;
  return made;
}

template <typename T>
TensorView<T, 2> matrix(std::vector<T>& data, int64_t rows, int64_t columns) {
  return TensorView<T, 2>::make(data.data(), {rows, columns});
}

/// Experts of a rank's tokens, uniform and ascending: [tokens, k], the same whoever asks.
std::vector<int32_t> routing(const CommSize& size, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<int32_t> ids;
  std::vector<int32_t> of_token;
  for (int64_t t = 0; t < size.tokens; ++t) {
    of_token.clear();
    while (of_token.size() < static_cast<size_t>(size.k)) {
      const auto id = static_cast<int32_t>(random() % static_cast<unsigned>(size.experts));
      if (std::ranges::find(of_token, id) == of_token.end()) of_token.push_back(id);
    }
    std::ranges::sort(of_token);
    ids.insert(ids.end(), of_token.begin(), of_token.end());
  }
  return ids;
}

double rows_bytes(const CommSize& size) {
  return static_cast<double>(message_bytes(size));
}

Result<CommCall> make_barrier(SymmetricHeap& heap, Stream&, const CommSize&) {
  auto barrier = std::make_shared<comm::Barrier>(TANDEM_TRY(comm::Barrier::create(heap)));
  return CommCall([barrier] { return barrier->wait(); });
}

Result<CommCall> make_all_gather(SymmetricHeap& heap, Stream&, const CommSize& size) {
  auto gather = std::make_shared<comm::AllGather>(
      TANDEM_TRY(comm::AllGather::create(heap, message_bytes(size))));
  return CommCall([gather, row = values(size.tokens * size.hidden)]() -> Result<void> {
    gather->start(std::as_bytes(std::span(row)));
    TANDEM_TRY(gather->finish());
    return {};
  });
}

/// Each rank reads its row and writes it to all, itself among them.
double all_gather_bytes(const CommSize& size) {
  return size.ranks * rows_bytes(size) * (1 + size.ranks);
}

Result<CommCall> make_broadcast(SymmetricHeap& heap, Stream&, const CommSize& size) {
  auto broadcast = std::make_shared<comm::Broadcast>(
      TANDEM_TRY(comm::Broadcast::create(heap, message_bytes(size))));
  return CommCall(
      [broadcast, rank = heap.rank(), row = values(size.tokens * size.hidden)]() -> Result<void> {
        if (rank == 0) return broadcast->send(std::as_bytes(std::span(row)));
        TANDEM_TRY(broadcast->receive());
        return {};
      });
}

double broadcast_bytes(const CommSize& size) {
  return rows_bytes(size) * size.ranks;
}

Result<CommCall> make_all_reduce(SymmetricHeap& heap, Stream& stream, const CommSize& size,
                                 int64_t one_shot_floats_max) {
  const int64_t floats = size.tokens * size.hidden;
  auto reduce = std::make_shared<comm::AllReduce>(TANDEM_TRY(comm::AllReduce::create(
      heap, {.floats_max = floats, .one_shot_floats_max = one_shot_floats_max})));
  return CommCall([reduce, &stream, x = values(floats), y = values(floats)]() mutable {
    return reduce->run(stream, x, y);
  });
}

Result<CommCall> make_one_shot(SymmetricHeap& heap, Stream& stream, const CommSize& size) {
  return make_all_reduce(heap, stream, size, size.tokens * size.hidden);
}

Result<CommCall> make_two_shot(SymmetricHeap& heap, Stream& stream, const CommSize& size) {
  return make_all_reduce(heap, stream, size, 0);
}

double one_shot_bytes(const CommSize& size) {
  return size.ranks * rows_bytes(size) * (2 + 2.0 * (size.ranks - 1));
}

double two_shot_bytes(const CommSize& size) {
  return size.ranks * rows_bytes(size) * (2 + 4.0 * (size.ranks - 1) / size.ranks);
}

/// Columns of a matrix of `tokens` rows, in equal parts.
Result<CommCall> make_gather_blocks(SymmetricHeap& heap, Stream& stream, const CommSize& size) {
  std::vector<comm::Block> blocks;
  int64_t columns_max = 0;
  for (int rank = 0; rank < size.ranks; ++rank) {
    const int64_t first = size.hidden * rank / size.ranks;
    const int64_t columns = size.hidden * (rank + 1) / size.ranks - first;
    blocks.push_back({.rows = size.tokens, .first_column = first, .columns = columns});
    columns_max = std::max(columns_max, columns);
  }
  auto gather = std::make_shared<comm::GatherBlocks>(TANDEM_TRY(comm::GatherBlocks::create(
      heap,
      {.columns_max = columns_max,
       .floats_max = std::min(comm::GatherBlocks::kPieceFloats, size.tokens * columns_max)})));
  return CommCall([=, &stream, y = values(size.tokens * size.hidden)]() mutable {
    return gather->run(stream, matrix(y, size.tokens, size.hidden), blocks);
  });
}

/// All blocks are one matrix, which is read once at its makers, put and read N-1 times, and written
/// N-1 times.
double gather_blocks_bytes(const CommSize& size) {
  return rows_bytes(size) * (1 + 3.0 * (size.ranks - 1));
}

/// A rank's experts of tokens that all ranks hold.
struct Selection {
  std::vector<int32_t> ids, offsets, row_source, row_of;
  int32_t first_expert = 0;
  int64_t tokens = 0, k = 0;

  static Result<Selection> make(const SymmetricHeap& heap, const CommSize& size) {
    const auto ranges = TANDEM_TRY(comm::ExpertRanges::balanced(size.experts, size.ranks));
    Selection made{.ids = routing(size, 0),
                   .first_expert = ranges.first(heap.rank()),
                   .tokens = size.tokens,
                   .k = size.k};
    made.offsets.resize(static_cast<size_t>(ranges.count(heap.rank())) + 1);
    made.row_source.resize(made.ids.size());
    made.row_of.resize(made.ids.size());
    return made;
  }
  Result<void> run(Stream& stream) {
    return comm::expert_select(
        stream, {.expert_ids = matrix(ids, tokens, k),
                 .first_expert = first_expert,
                 .expert_offsets = TensorView<int32_t, 1>::make(
                     offsets.data(), {static_cast<int64_t>(offsets.size())}),
                 .row_source = TensorView<int32_t, 1>::make(row_source.data(), {tokens * k}),
                 .row_of = matrix(row_of, tokens, k)});
  }
};

Result<CommCall> make_select(SymmetricHeap& heap, Stream& stream, const CommSize& size) {
  return CommCall([selection = TANDEM_TRY(Selection::make(heap, size)), &stream]() mutable {
    return selection.run(stream);
  });
}

/// Every rank reads all ids and writes a row number for each; each pair gets one source.
double select_bytes(const CommSize& size) {
  return static_cast<double>(size.tokens * size.k) * sizeof(int32_t) * (2 * size.ranks + 1);
}

Result<CommCall> make_combine(SymmetricHeap& heap, Stream& stream, const CommSize& size) {
  auto combine = std::make_shared<comm::ExpertCombine>(TANDEM_TRY(
      comm::ExpertCombine::create(heap, {.tokens_max = size.tokens, .hidden = size.hidden})));
  Selection selection = TANDEM_TRY(Selection::make(heap, size));
  TANDEM_TRY(selection.run(stream));
  const int64_t rows = selection.offsets.back();
  return CommCall([=, &stream, rows_data = values(rows * size.hidden),
                   weights = values(size.tokens * size.k),
                   y = values(size.tokens * size.hidden)]() mutable {
    return combine->run(stream, {.rows = matrix(rows_data, rows, size.hidden),
                                 .row_of = matrix(selection.row_of, size.tokens, size.k),
                                 .expert_ids = matrix(selection.ids, size.tokens, size.k),
                                 .weights = matrix(weights, size.tokens, size.k),
                                 .wire = size.dtype,
                                 .y = matrix(y, size.tokens, size.hidden)});
  });
}

/// Every pair's row is read once; each rank makes sums, reduces them and adds them to y.
double combine_bytes(const CommSize& size) {
  const int64_t short_floats = comm::AllReduce::Options().one_shot_floats_max;
  const bool is_short = size.tokens * size.hidden <= short_floats;
  return rows_bytes(size) * static_cast<double>(size.k) + size.ranks * rows_bytes(size) * 2 +
         (is_short ? one_shot_bytes(size) : two_shot_bytes(size));
}

Result<comm::ExpertPlacement> placement_of(const CommSize& size) {
  return comm::ExpertPlacement::initial(
      {.experts_count = static_cast<int32_t>(size.experts), .ranks_count = size.ranks});
}

Result<CommCall> make_exchange(SymmetricHeap& heap, Stream& stream, const CommSize& size) {
  const auto placement = TANDEM_TRY(placement_of(size));
  auto exchange = std::make_shared<comm::ExpertExchange>(TANDEM_TRY(
      comm::ExpertExchange::create(heap, {.tokens_max = size.tokens,
                                          .hidden = size.hidden,
                                          .k = size.k,
                                          .dispatch = size.dtype,
                                          .wire = size.dtype,
                                          .slots_count = placement.slots_count(heap.rank())})));
  int64_t rows = 0;  // that this rank's experts compute
  for (int source = 0; source < size.ranks; ++source) {
    for (const int32_t id : routing(size, source)) {
      if (placement.server(id, source) == heap.rank()) ++rows;
    }
  }
  return CommCall([=, &stream, ids = routing(size, heap.rank()),
                   x = values(size.tokens * size.hidden), results = values(rows * size.hidden),
                   weights = values(size.tokens * size.k),
                   y = values(size.tokens * size.hidden)]() mutable -> Result<void> {
    const auto expert_ids = matrix(ids, size.tokens, size.k);
    TANDEM_TRY(exchange->dispatch(stream, {.x = matrix(x, size.tokens, size.hidden),
                                           .expert_ids = expert_ids,
                                           .placement = &placement}));
    return exchange->combine(stream, {.rows = matrix(results, rows, size.hidden),
                                      .expert_ids = expert_ids,
                                      .weights = matrix(weights, size.tokens, size.k),
                                      .y = matrix(y, size.tokens, size.hidden)});
  });
}

/// Dispatch: x is read, and written once per rank of its experts (bf16: written, read and written
/// again as floats). Combine: a result per pair is read, written, and read at its token's owner;
/// y is read and written.
double exchange_bytes(const CommSize& size) {
  const auto placement = placement_of(size);
  TANDEM_CHECK(placement.ok(), "the exchange was made with this placement");
  double places = 0;
  for (int rank = 0; rank < size.ranks; ++rank) {
    const std::vector<int32_t> ids = routing(size, rank);
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool is_first = i % static_cast<size_t>(size.k) == 0;
      if (is_first || placement->server(ids[i], rank) != placement->server(ids[i - 1], rank)) {
        ++places;
      }
    }
  }
  const auto hidden = static_cast<double>(size.hidden);
  const auto wire = static_cast<double>(dtype_bytes(size.dtype));
  const double place_bytes = size.dtype == DType::kF32 ? 4 : 2 * wire + 4;
  const double pairs = static_cast<double>(size.tokens * size.k) * size.ranks;
  return size.ranks * rows_bytes(size) * 3 + places * hidden * place_bytes +
         pairs * hidden * (4 + 2 * wire);
}

constexpr Collective kCollectives[] = {
    {.name = "barrier",
     .has_rows = false,
     .make = make_barrier,
     .bytes_moved = [](const CommSize&) { return 0.0; }},
    {.name = "all_gather", .make = make_all_gather, .bytes_moved = all_gather_bytes},
    {.name = "all_reduce_one_shot", .make = make_one_shot, .bytes_moved = one_shot_bytes},
    {.name = "all_reduce_two_shot", .make = make_two_shot, .bytes_moved = two_shot_bytes},
    {.name = "broadcast", .make = make_broadcast, .bytes_moved = broadcast_bytes},
    {.name = "gather_blocks", .make = make_gather_blocks, .bytes_moved = gather_blocks_bytes},
    {.name = "expert_select",
     .has_experts = true,
     .make = make_select,
     .bytes_moved = select_bytes},
    {.name = "expert_combine",
     .has_experts = true,
     .make = make_combine,
     .bytes_moved = combine_bytes},
    {.name = "expert_exchange",
     .has_experts = true,
     .make = make_exchange,
     .bytes_moved = exchange_bytes},
};

}  // namespace

std::span<const Collective> collectives() {
  return kCollectives;
}

}  // namespace tandem::apps
