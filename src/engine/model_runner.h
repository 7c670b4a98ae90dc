#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "device/device.h"
#include "engine/batch.h"
#include "engine/limits.h"
#include "engine/rank_tally.h"
#include "engine/step_memory.h"
#include "model/qwen3.h"

namespace tandem::engine {

/// Runs steps of one model on one device: one rank. Owns the KV memory, the activations and the
/// stream; the model is shared and read only. With peers every rank makes the same calls, from
/// create() on (group_runner.h).
class ModelRunner final : public StepRunner {
 public:
  struct Options {
    Limits limits;
    DType kv_dtype = DType::kBF16;
    model::RankComm* comm = nullptr;  ///< with the peers of this rank; outlives the runner
  };
  /// Allocates everything a step needs (step_memory.h) and runs the steps that need most of it, so
  /// that later steps allocate nothing. `device` and `model` must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> create(Device& device, const model::Qwen3& model,
                                                     const Options& options);

  Result<void> run(uint64_t step, std::span<const BatchItem> items,
                   std::span<ops::SampledRow> sampled) override;
  /// This rank, as the only one.
  void append_ranks(std::vector<RankStatus>& ranks) const override;

  // The parts of run(), for a rank whose step is also its peers'.
  /// Turns items into tensors, which are valid until the next call.
  model::StepInput prepare(std::span<const BatchItem> items);
  Result<void> forward(uint64_t step, model::StepInput input);
  /// Samples for the items of the last prepare().
  Result<void> sample(std::span<ops::SampledRow> sampled);

  /// The peers of the steps to come; null until they are known again.
  void use(model::RankComm* comm) { options_.comm = comm; }
  /// The first expert that an item of the last step asked for and that nobody holds.
  std::optional<model::Qwen3::LostExpert> lost_expert_of(size_t item) const;

  Stream& stream() { return *stream_; }
  /// One per layer. Others may write pages that await K and V, and read those that are exported.
  std::span<const ops::KvPool> kv_pools() const { return memory_.kv.pools(); }
  KvStorage& kv_storage() { return memory_.kv; }
  /// Of this rank's tensor-parallel group.
  kv::KvLayout kv_layout() const;
  /// `step * layers + layer` of the last K and V that this rank has written, and all before them.
  /// A step that is run again repeats its numbers. On any thread.
  uint64_t layer_progress() const;
  /// Of the steps after warm-up.
  const RankTally& tally() const { return tally_; }
  /// Logits of the sampling items of the last run, in order: [rows, vocabulary].
  TensorView<const float, 2> last_logits() const {
    return memory_.activations.logits.head(rows_count_);
  }

 private:
  ModelRunner(const model::Qwen3& model, const Options& options)
      : model_(model), options_(options) {}
  Result<void> warm_up();

  const model::Qwen3& model_;
  Options options_;
  std::unique_ptr<Stream> stream_;
  StepMemory memory_;
  std::vector<ops::SampleRow> sample_rows_;
  int64_t rows_count_ = 0;
  RankTally tally_;
  bool is_warm_ = false;
  uint64_t warm_up_pairs_ = 0;
};

}  // namespace tandem::engine
