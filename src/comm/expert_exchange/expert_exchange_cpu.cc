// Contract   dispatch and combine of tokens that differ per rank, expert_exchange.h
// Work       every record and result is written once into its owner's heap and read once
// Plan       packing on the rank's own thread, since its peers use the other cores; f32 tokens are
//            used where they arrived, bf16 ones are unpacked by the stream's team
// Reference  ops/moe_combine on one rank, expert_exchange_test.cc
#include <algorithm>
#include <cstring>
#include <limits>

#include "comm/expert_combine/weighted_rows.h"
#include "comm/expert_exchange/expert_exchange.h"
#include "comm/peers.h"
#include "cpu/cpu_device.h"
#include "cpu/vector.h"

namespace tandem::comm {
namespace {

constexpr int64_t kRecordAlignment = 16;

int64_t aligned(int64_t bytes) {
  return (bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

/// Writes a row as it travels; returns its bytes.
std::span<const std::byte> encode_row(DType type, const float* row, int64_t n, std::byte* space) {
  if (type == DType::kF32) return std::as_bytes(std::span(row, static_cast<size_t>(n)));
  cpu::to_bf16(reinterpret_cast<bf16*>(space), row, n);
  return {space, static_cast<size_t>(n) * sizeof(bf16)};
}

}  // namespace

/// What stands before a token's payload: which of its experts the receiver is to compute.
struct ExpertExchange::Header {
  struct Pair {
    uint16_t expert;
    uint16_t number;  // among the experts of the token
  };
  int32_t token;  // at its owner
  int32_t pairs_count;
  int32_t unused[2];
  Pair pairs[];
};

Result<ExpertExchange> ExpertExchange::create(SymmetricHeap& heap, Options options) {
  TANDEM_CHECK(options.slots_count >= 1, "every rank can hold an expert");
  TANDEM_CHECK(options.hidden >= 1 && options.k >= 1 && options.tokens_max >= 1, "a layer's sizes");
  const auto ranks = static_cast<size_t>(heap.ranks_count());
  const auto tokens = static_cast<size_t>(options.tokens_max);
  const auto element_bytes = [](DType type) { return static_cast<int64_t>(dtype_bytes(type)); };
  Layout layout;
  layout.header_bytes = aligned(static_cast<int64_t>(sizeof(Header)) +
                                options.k * static_cast<int64_t>(sizeof(Header::Pair)));
  layout.record_bytes =
      layout.header_bytes + aligned(options.hidden * element_bytes(options.dispatch));
  layout.row_bytes = options.hidden * element_bytes(options.wire);
  layout.records =
      TANDEM_TRY(heap.allocate(ranks * tokens * static_cast<size_t>(layout.record_bytes)));
  layout.counts = TANDEM_TRY(heap.allocate(ranks * sizeof(uint64_t)));
  layout.results = TANDEM_TRY(heap.allocate(tokens * static_cast<size_t>(options.k) *
                                            static_cast<size_t>(layout.row_bytes)));
  layout.dispatched =
      TANDEM_TRY(heap.allocate_flags(heap.ranks_count(), WaitKind::kExpertDispatch));
  layout.combined = TANDEM_TRY(heap.allocate_flags(heap.ranks_count(), WaitKind::kExpertReturn));
  return ExpertExchange(heap, options, layout);
}

ExpertExchange::ExpertExchange(SymmetricHeap& heap, Options options, Layout layout)
    : heap_(&heap), options_(options), layout_(layout) {
  const auto ranks = static_cast<size_t>(heap.ranks_count());
  const auto slots = static_cast<size_t>(options.slots_count);
  const size_t places = ranks * static_cast<size_t>(options.tokens_max);
  const size_t rows = places * std::min(static_cast<size_t>(options.k), slots);
  record_.resize(static_cast<size_t>(std::max(layout.record_bytes, layout.row_bytes)));
  sent_.resize(ranks);
  expert_offsets_.resize(slots + 1);
  next_row_.resize(slots);
  row_source_.resize(rows);
  row_rank_.resize(rows);
  row_pair_.resize(rows);
  if (options.dispatch != DType::kF32) {
    unpacked_.resize(places * static_cast<size_t>(options.hidden));
  }
  result_row_.resize(static_cast<size_t>(options.tokens_max * options.k));
  targets_.resize(static_cast<size_t>(options.k));
}

const ExpertExchange::Header& ExpertExchange::header(int source, int64_t index) const {
  const int64_t place = source * options_.tokens_max + index;
  return *heap_->local<Header>(layout_.records + static_cast<size_t>(place * layout_.record_bytes));
}

Result<ExpertExchange::Received> ExpertExchange::dispatch(Stream& stream,
                                                          const DispatchArgs& args) {
  TANDEM_CHECK(!dispatched_, "a dispatch follows a combine");
  TANDEM_CHECK(args.x.shape[0] <= options_.tokens_max, "more tokens than announced");
  TANDEM_CHECK(args.x.shape[1] == options_.hidden, "rows are as wide as announced");
  TANDEM_CHECK(
      args.expert_ids.shape[0] == args.x.shape[0] && args.expert_ids.shape[1] == options_.k,
      "k experts per token");
  TANDEM_CHECK(args.placement->ranks_count() == heap_->ranks_count(), "a placement on these ranks");
  TANDEM_CHECK(args.placement->slots_count(heap_->rank()) == options_.slots_count,
               "as many slots as announced");
  TANDEM_CHECK(args.placement->experts_count() <= std::numeric_limits<uint16_t>::max(),
               "an expert's number fits in a header");
  dispatched_ = true;
  ++epoch_;
  send_tokens(args);
  TANDEM_TRY(wait_for_peers(*heap_, layout_.dispatched, epoch_));
  TANDEM_TRY(group_received(*args.placement));

  Received received;
  const int64_t places = heap_->ranks_count() * options_.tokens_max;
  if (options_.dispatch == DType::kF32) {
    const auto* first =
        heap_->local<const float>(layout_.records + static_cast<size_t>(layout_.header_bytes));
    received.x = {first, {places, options_.hidden}, layout_.record_bytes / 4};
  } else {
    received.x = TensorView<const float, 2>::make(unpack(stream), {places, options_.hidden});
  }
  received.row_source =
      TensorView<const int32_t, 1>::make(row_source_.data(), {expert_offsets_.back()});
  received.expert_offsets = TensorView<const int32_t, 1>::make(
      expert_offsets_.data(), {static_cast<int64_t>(expert_offsets_.size())});
  return received;
}

void ExpertExchange::send_token(const DispatchArgs& args, int64_t token) {
  const int32_t* ids = args.expert_ids.row(token);
  for (size_t j = 0; j < targets_.size(); ++j) {
    const int64_t pair = token * options_.k + static_cast<int64_t>(j);
    targets_[j] = args.placement->server(ids[j], heap_->rank());
    const bool is_lost = targets_[j] == ExpertPlacement::kNone;
    result_row_[static_cast<size_t>(pair)] = is_lost ? -1 : static_cast<int32_t>(pair);
  }
  auto& header = *reinterpret_cast<Header*>(record_.data());
  const auto header_bytes = static_cast<size_t>(layout_.header_bytes);
  const auto payload = encode_row(options_.dispatch, args.x.row(token), options_.hidden,
                                  record_.data() + header_bytes);
  for (size_t first = 0; first < targets_.size(); ++first) {
    const int target = targets_[first];
    if (target == ExpertPlacement::kNone) continue;  // nobody's, or sent
    std::memset(record_.data(), 0, header_bytes);
    header.token = static_cast<int32_t>(token);
    for (size_t j = first; j < targets_.size(); ++j) {
      if (targets_[j] != target) continue;
      header.pairs[header.pairs_count++] = {.expert = static_cast<uint16_t>(ids[j]),
                                            .number = static_cast<uint16_t>(j)};
      targets_[j] = ExpertPlacement::kNone;
    }
    const auto place = static_cast<size_t>(heap_->rank() * options_.tokens_max) +
                       sent_[static_cast<size_t>(target)]++;
    const size_t offset = layout_.records + place * static_cast<size_t>(layout_.record_bytes);
    heap_->put(target, offset, {record_.data(), header_bytes});
    heap_->put(target, offset + header_bytes, payload);
  }
}

void ExpertExchange::send_tokens(const DispatchArgs& args) {
  std::fill(sent_.begin(), sent_.end(), 0);
  for (int64_t t = 0; t < args.x.shape[0]; ++t) send_token(args, t);
  const auto send_count = [&](int target) {
    const auto own = static_cast<size_t>(heap_->rank());
    heap_->put(target, layout_.counts + own * sizeof(uint64_t),
               std::as_bytes(std::span(&sent_[static_cast<size_t>(target)], 1)));
  };
  send_count(heap_->rank());
  for_each_peer(*heap_, send_count);
  signal_peers(*heap_, layout_.dispatched, epoch_);
}

Result<void> ExpertExchange::group_received(const ExpertPlacement& placement) {
  const auto* counts = heap_->local<const uint64_t>(layout_.counts);
  const auto slot_of = [&](Header::Pair pair) {
    return pair.expert < placement.experts_count() ? placement.slot_of(heap_->rank(), pair.expert)
                                                   : ExpertPlacement::kNone;
  };
  const auto for_each_record = [&](auto&& body) {
    for (int source = 0; source < heap_->ranks_count(); ++source) {
      for (int64_t i = 0; i < static_cast<int64_t>(counts[source]); ++i) {
        body(source, source * options_.tokens_max + i, header(source, i));
      }
    }
  };
  for (int source = 0; source < heap_->ranks_count(); ++source) {
    if (counts[source] > static_cast<uint64_t>(options_.tokens_max)) {
      return make_error(Code::kDataLoss, heap_->health().name(source) + " sent too many tokens");
    }
  }
  bool is_sound = true;
  std::fill(expert_offsets_.begin(), expert_offsets_.end(), 0);
  for_each_record([&](int, int64_t, const Header& record) {
    is_sound = is_sound && record.token >= 0 && record.token < options_.tokens_max &&
               record.pairs_count >= 1 && record.pairs_count <= options_.k;
    for (int32_t j = 0; is_sound && j < record.pairs_count; ++j) {
      const int32_t slot = slot_of(record.pairs[j]);
      is_sound = slot != ExpertPlacement::kNone && record.pairs[j].number < options_.k;
      if (is_sound) ++expert_offsets_[static_cast<size_t>(slot) + 1];
    }
  });
  if (!is_sound) return make_error(Code::kDataLoss, "a dispatched token has impossible experts");

  for (size_t e = 1; e < expert_offsets_.size(); ++e) expert_offsets_[e] += expert_offsets_[e - 1];
  std::copy_n(expert_offsets_.begin(), next_row_.size(), next_row_.begin());
  for_each_record([&](int source, int64_t place, const Header& record) {
    for (int32_t j = 0; j < record.pairs_count; ++j) {
      const auto slot = static_cast<size_t>(slot_of(record.pairs[j]));
      const auto row = static_cast<size_t>(next_row_[slot]++);
      row_source_[row] = static_cast<int32_t>(place);
      row_rank_[row] = source;
      row_pair_[row] = record.token * static_cast<int32_t>(options_.k) + record.pairs[j].number;
    }
  });
  return {};
}

float* ExpertExchange::unpack(Stream& stream) {
  const auto* counts = heap_->local<const uint64_t>(layout_.counts);
  const int64_t places = heap_->ranks_count() * options_.tokens_max;
  cpu::cpu_stream(stream).team().parallel_for(places, [&](int64_t place, int) {
    const int64_t source = place / options_.tokens_max;
    if (place % options_.tokens_max >= static_cast<int64_t>(counts[source])) return;
    const int64_t at = place * layout_.record_bytes + layout_.header_bytes;
    const auto* payload = heap_->local<const bf16>(layout_.records + static_cast<size_t>(at));
    cpu::to_float(unpacked_.data() + place * options_.hidden, payload, options_.hidden);
  });
  return unpacked_.data();
}

void ExpertExchange::send_results(const CombineArgs& args) {
  for (int64_t row = 0; row < args.rows.shape[0]; ++row) {
    const auto pair = static_cast<size_t>(row_pair_[static_cast<size_t>(row)]);
    heap_->put(row_rank_[static_cast<size_t>(row)],
               layout_.results + pair * static_cast<size_t>(layout_.row_bytes),
               encode_row(options_.wire, args.rows.row(row), options_.hidden, record_.data()));
  }
  signal_peers(*heap_, layout_.combined, epoch_);
}

Result<void> ExpertExchange::combine(Stream& stream, const CombineArgs& args) {
  TANDEM_CHECK(dispatched_, "a combine follows a dispatch");
  TANDEM_CHECK(args.rows.shape[0] == expert_offsets_.back(), "a result for every received row");
  dispatched_ = false;
  send_results(args);
  TANDEM_TRY(wait_for_peers(*heap_, layout_.combined, epoch_));
  return weighted_rows(
      stream, {.rows = heap_->local<const std::byte>(layout_.results),
               .row_type = options_.wire,
               .wire = options_.wire,
               .row_of = TensorView<const int32_t, 2>::make(result_row_.data(), args.weights.shape),
               .expert_ids = args.expert_ids,
               .weights = args.weights,
               .accumulate = true,
               .y = args.y});
}

}  // namespace tandem::comm
