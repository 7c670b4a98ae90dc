#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "comm/symmetric_heap.h"
#include "device/device.h"
#include "device/dtype.h"

namespace tandem::apps {

/// One collective at one size, as `bench comm` measures it. Every rank brings `tokens` rows.
struct CommSize {
  int ranks = 1;
  int64_t tokens = 1;  ///< of each rank
  int64_t hidden = 1;
  int64_t k = 1;              ///< experts per token
  int32_t experts = 1;        ///< of the layer, over all ranks
  DType dtype = DType::kF32;  ///< in which experts' tokens and results travel
};

/// One call on this rank; all ranks make the same number of calls.
using CommCall = std::function<Result<void>()>;

struct Collective {
  std::string_view name;
  bool has_experts = false;  ///< depends on k and dtype
  bool has_rows = true;      ///< depends on tokens and hidden
  /// Takes the collective from the heap, with inputs that are never zero. All ranks alike.
  Result<CommCall> (*make)(comm::SymmetricHeap& heap, Stream& stream, const CommSize& size);
  /// What all ranks together cannot avoid to read and write in one call: inputs read once, outputs
  /// written once, and every byte that is put written once and read once by whom it is for.
  double (*bytes_moved)(const CommSize& size);
};

/// All that there are, in the order of a report.
std::span<const Collective> collectives();

/// Bytes of the rows that one rank brings: the size of the buffers whose copy is the floor.
inline size_t message_bytes(const CommSize& size) {
  return static_cast<size_t>(size.tokens * size.hidden) * sizeof(float);
}

}  // namespace tandem::apps
