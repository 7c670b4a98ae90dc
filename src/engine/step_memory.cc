#include "engine/step_memory.h"

namespace tandem::engine {

model::Activations::Limits StepMemory::Options::activations() const {
  return {.tokens_max = tokens_max, .rows_max = rows_max};
}

StepTensors::Limits StepMemory::Options::tensors() const {
  return {.tokens_max = tokens_max,
          .sequences_max = sequences_max,
          .rows_max = rows_max,
          .pages_max = pages_max,
          .page_tokens = page_tokens};
}

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
      .activations = model::Activations::bytes_needed(shard, options.activations()),
      .logits = static_cast<size_t>(options.rows_max * shard.config.vocab_size) * sizeof(float),
      .index = StepTensors::bytes_needed(options.tensors()) + sizeof(uint64_t),
  };
}

Result<StepMemory> StepMemory::create(Device& device, const model::Shard& shard,
                                      const Options& options) {
  StepMemory memory;
  memory.kv = TANDEM_TRY(KvStorage::create(device, shard,
                                           {.dtype = options.kv_dtype,
                                            .pages_count = options.pages_total,
                                            .page_tokens = options.page_tokens}));
  memory.activations = TANDEM_TRY(model::Activations::create(device, shard, options.activations()));
  memory.tensors = TANDEM_TRY(StepTensors::create(device, options.tensors()));
  memory.progress = TANDEM_TRY(device.allocate(sizeof(uint64_t)));
  *memory.progress.as<uint64_t>() = 0;
  return memory;
}

}  // namespace tandem::engine
