#pragma once

#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "device/device.h"
#include "engine/step_memory.h"
#include "model/qwen3.h"

namespace tandem::engine {

/// Logits of every position of given texts, for `tandem logits` and `tandem eval`: one sequence at
/// a time, in chunks, with its own KV memory. Gives the same bits as the serving path.
class Scorer {
 public:
  struct Options {
    uint32_t model_length_max = 0;
    uint32_t chunk_tokens = 256;
    uint32_t page_tokens = 16;
    DType kv_dtype = DType::kBF16;
  };
  /// What create() allocates.
  static StepMemory::Options memory_of(const Options& options);
  /// `device` and `model` must outlive the scorer.
  static Result<std::unique_ptr<Scorer>> create(Device& device, const model::Qwen3& model,
                                                const Options& options);

  /// Calls visit(position, logits [vocabulary]) for every position in order; the logits at a
  /// position predict the next token. kInvalidArgument: no tokens, too many, or unknown ids.
  Result<void> score(std::span<const TokenId> tokens,
                     const std::function<void(size_t, std::span<const float>)>& visit);

  /// Inside visit(): the experts that a layer chose for this position, [k] in ascending order; none
  /// for a dense layer. For comparing runs: a row whose experts differ differs for a reason.
  std::span<const int32_t> experts(int64_t layer) const;

 private:
  Scorer(const model::Qwen3& model, const Options& options) : model_(model), options_(options) {}

  const model::Qwen3& model_;
  Options options_;
  std::unique_ptr<Stream> stream_;
  StepMemory memory_;
  std::vector<PageId> pages_;
  int64_t row_ = 0;  // of the activations, being visited
};

/// -log softmax(logits)[token] in nats, summed in double.
double nats_of(std::span<const float> logits, TokenId token);

}  // namespace tandem::engine
