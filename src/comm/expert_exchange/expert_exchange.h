#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "comm/expert_placement.h"
#include "comm/symmetric_heap.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::comm {

/// Where every rank holds other tokens (data parallelism): sends tokens to the ranks of their
/// experts and brings the results back. Any ranks may have any number of tokens, none included,
/// but all take part. The sum is made at the token's owner, from one row per expert, in the binary
/// tree over expert ids: the bits of ops/moe_combine on one rank, for any placement of the experts,
/// which may be another one at every dispatch. An expert that nobody holds is left out of the sums.
///
/// Phases     dispatch: 1 put one record per token and rank of its experts, 2 put the counts,
///            signal, 3 wait for all, group the pairs by expert (expert, source rank, token)
///            combine: 4 put each expert row to its token's owner, signal, 5 wait for all, sum
/// Bytes      dispatch: tokens * distinct remote ranks * (payload + header) + 8 (N-1)
///            combine: remote (token, expert) pairs * row bytes
///            payload = hidden of the dispatch type, header = 16 + 4 k in whole 16 bytes,
///            row = hidden of the wire type; 8 bytes per peer carry its count
/// Roof       few tokens: two signals and wake-ups; many: the copy, each byte written and read once
/// Reuse      one buffer each. A rank dispatches again after its combine, which waited for
///            everyone's combine signal, which follows everyone's last use of what was dispatched.
///            It sends results after everyone's dispatch, which follows everyone's sum before.
class ExpertExchange {
 public:
  struct Options {
    int64_t tokens_max = 0;  ///< of one rank
    int64_t hidden = 0;
    int64_t k = 0;                 ///< experts per token
    DType dispatch = DType::kF32;  ///< how tokens travel: kF32, or kBF16 (rounded, also locally)
    DType wire = DType::kF32;      ///< how results travel: kF32 or kBF16 (rounded, also locally)
    int32_t slots_count = 0;       ///< experts that this rank can hold
  };
  /// All ranks, at the same place of their allocations, with the same options but for slots_count.
  static Result<ExpertExchange> create(SymmetricHeap& heap, Options options);

  /// The input of expert_linear on this rank; valid until combine.
  struct Received {
    TensorView<const float, 2> x;                 ///< [places, hidden], found through row_source
    TensorView<const int32_t, 1> row_source;      ///< [rows], places of x
    TensorView<const int32_t, 1> expert_offsets;  ///< [slots of this rank + 1], last = rows
  };
  struct DispatchArgs {
    TensorView<const float, 2> x;                ///< [tokens, hidden]
    TensorView<const int32_t, 2> expert_ids;     ///< [tokens, k], ascending in each row
    const ExpertPlacement* placement = nullptr;  ///< the same on all ranks
  };
  Result<Received> dispatch(Stream& stream, const DispatchArgs& args);

  struct CombineArgs {
    TensorView<const float, 2> rows;          ///< [rows, hidden], results in the received order
    TensorView<const int32_t, 2> expert_ids;  ///< as dispatched
    TensorView<const float, 2> weights;       ///< [tokens, k]
    TensorView<float, 2> y;                   ///< [tokens, hidden], y += sum
  };
  /// Follows a dispatch.
  Result<void> combine(Stream& stream, const CombineArgs& args);

 private:
  struct Layout {
    int64_t header_bytes = 0;
    int64_t record_bytes = 0;  // of a place in the heap
    int64_t row_bytes = 0;
    size_t records = 0;    // offset of [source][tokens_max] records
    size_t counts = 0;     // offset of [source] uint64_t
    size_t results = 0;    // offset of [tokens_max * k] rows
    Flag dispatched = {};  // one per source rank
    Flag combined = {};    // one per source rank
  };
  struct Header;

  ExpertExchange(SymmetricHeap& heap, Options options, Layout layout);
  void send_tokens(const DispatchArgs& args);
  void send_token(const DispatchArgs& args, int64_t token);
  Result<void> group_received(const ExpertPlacement& placement);
  const Header& header(int source, int64_t index) const;
  float* unpack(Stream& stream);
  void send_results(const CombineArgs& args);

  SymmetricHeap* heap_;
  Options options_;
  Layout layout_;
  uint64_t epoch_ = 0;
  bool dispatched_ = false;

  std::vector<std::byte> record_;        // the one being sent
  std::vector<uint64_t> sent_;           // records per destination
  std::vector<int32_t> expert_offsets_;  // [slots of this rank + 1]
  std::vector<int32_t> next_row_;        // per slot
  std::vector<int32_t> row_source_;      // per row: the place of its token
  std::vector<int32_t> row_rank_;        // per row: whose token
  std::vector<int32_t> row_pair_;        // per row: token * k + j at its owner
  std::vector<float> unpacked_;          // [source * tokens_max, hidden] if dispatched as bf16
  std::vector<int32_t> result_row_;      // per pair: its row of the results, -1 if nobody sends it
  std::vector<int> targets_;             // per expert of the token being sent
};

}  // namespace tandem::comm
