#include "engine/step_memory.h"

namespace tandem::engine {
namespace {

model::Activations::Limits activation_limits(const StepMemory::Options& o) {
  return {.tokens_max = o.tokens_max, .rows_max = o.rows_max};
}

StepTensors::Limits tensor_limits(const StepMemory::Options& o) {
  return {.tokens_max = o.tokens_max,
          .sequences_max = o.sequences_max,
          .rows_max = o.rows_max,
          .pages_max = o.pages_max,
          .page_tokens = o.page_tokens};
}

}  // namespace

StepMemory::Options StepMemory::options_of(const Limits& l, DType kv_dtype) {
  return {.kv_dtype = kv_dtype,
          .tokens_max = l.step_tokens_max,
          .sequences_max = l.sequences_max,
          .rows_max = l.sequences_max,
          .pages_max = (int64_t{l.model_length_max} + l.page_tokens - 1) / l.page_tokens,
          .pages_total = l.pages_total,
          .page_tokens = l.page_tokens};
}

StepMemory::Bytes StepMemory::bytes_needed(const model::Shard& shard, const Options& options) {
  return {
      .kv = static_cast<size_t>(options.pages_total) *
            KvStorage::bytes_per_page(shard, options.kv_dtype, options.page_tokens),
      .activations = model::Activations::bytes_needed(shard, activation_limits(options)),
      .logits = static_cast<size_t>(options.rows_max * shard.config.vocab_size) * sizeof(float),
      .index = StepTensors::bytes_needed(tensor_limits(options)),
  };
}

Result<StepMemory> StepMemory::create(Device& device, const model::Shard& shard,
                                      const Options& options) {
  StepMemory memory;
  memory.kv = TANDEM_TRY(KvStorage::create(device, shard,
                                           {.dtype = options.kv_dtype,
                                            .pages_count = options.pages_total,
                                            .page_tokens = options.page_tokens}));
  memory.activations =
      TANDEM_TRY(model::Activations::create(device, shard, activation_limits(options)));
  memory.tensors = TANDEM_TRY(StepTensors::create(device, tensor_limits(options)));
  return memory;
}

}  // namespace tandem::engine
