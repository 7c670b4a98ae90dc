#pragma once

#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/symmetric_heap.h"
#include "cpu/cpu_device.h"
#include "engine/step_memory.h"
#include "model/qwen3.h"
#include "model/rank_comm.h"
#include "model/weight_source.h"

namespace tandem::ranks {

using Text = std::vector<TokenId>;
using MakeSource = std::function<Result<std::unique_ptr<model::WeightSource>>()>;

/// A model and how it is computed, the same for all ranks.
struct ScoredModel {
  model::ModelConfig config;
  MakeSource make_source;
  DType compute = DType::kBF16;
};

/// One rank that computes the logits of every position of texts, without an engine: the model and
/// its collectives alone. In a layout that rebalances experts, they get other places before every
/// step, for loads drawn at random.
class RankScorer {
 public:
  static constexpr int64_t kChunkTokens = 48;
  static constexpr int64_t kLengthMax = 640;

  /// `heap` outlives this; the only rank needs none.
  static Result<std::unique_ptr<RankScorer>> create(const ScoredModel& model,
                                                    const model::Layout& layout, int rank,
                                                    comm::SymmetricHeap* heap);
  static size_t heap_bytes(const ScoredModel& model, const model::Layout& layout);

  /// Steps that score() of these texts takes.
  static int steps_of(std::span<const Text> texts);
  /// Per text a digest of the logits of all its positions, bit by bit; a chunk of one text per
  /// step.
  Result<std::vector<uint64_t>> score(std::span<const Text> texts);
  /// Takes part in steps without tokens.
  Result<void> join(int steps);

  const model::Shard& shard() const { return model_->shard(); }
  /// Slots of any rank that got another expert so far.
  int moves_count() const { return moves_count_; }

 private:
  Result<void> step();
  Result<void> replace_experts();

  std::unique_ptr<cpu::CpuDevice> device_;
  std::unique_ptr<model::Qwen3> model_;
  std::unique_ptr<model::RankComm> comm_;
  std::unique_ptr<Stream> stream_;
  engine::StepMemory memory_;
  std::vector<PageId> pages_;
  std::unique_ptr<model::WeightSource> source_;
  std::unique_ptr<model::ExpertReader> experts_;
  std::mt19937_64 random_{17};  // the same on all ranks
  int moves_count_ = 0;
};

}  // namespace tandem::ranks
