#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "cpu/host_memory.h"
#include "engine/step_memory.h"
#include "model/qwen3.h"

namespace tandem::apps {

/// With which flags a user of the verb chooses how much memory steps need.
enum class SizeFlags {
  kLength,          ///< --max-model-len
  kLengthAndCache,  ///< that, --kv-cache-tokens and the limits of a step
  kCells,           ///< lengths and batches of a benchmark
};

/// What is going to be loaded and run.
struct MemoryDemand {
  const model::ModelConfig& config;
  DType compute = DType::kBF16;
  uint32_t model_length_max = 0;
  engine::StepMemory::Options step;
  int threads_count = 1;
  SizeFlags size_flags = SizeFlags::kLength;
  size_t verb_bytes = 0;  ///< what the verb takes beside model and steps
  model::Layout layout;
  int first_rank = 0;        ///< of this process
  int ranks_count = 1;       ///< of this process, each with threads_count
  size_t heap_bytes = 0;     ///< of each of them, to exchange with others
  bool receives_kv = false;  ///< other workers write K and V here, and sidecars beside them
};

/// The memory of a demand, of all ranks of this process, known from the config alone.
struct MemoryPlan {
  model::WeightBytes weights;
  engine::StepMemory::Bytes step;
  size_t heap_bytes = 0;     ///< what ranks exchange goes through
  size_t sidecar_bytes = 0;  ///< records that prove K and V which other workers wrote
  // Estimates from above, unlike the exact numbers before them:
  size_t scratch_bytes = 0;  ///< what the ops of a step use
  size_t program_bytes = 0;  ///< code, threads, tokenizer, and what the verb itself takes
  cpu::HostMemory host;

  size_t needed_bytes() const {
    return weights.total() + step.total() + heap_bytes + sidecar_bytes + scratch_bytes +
           program_bytes;
  }
  bool fits() const { return needed_bytes() <= host.available_bytes(); }
};

MemoryPlan plan_memory(const MemoryDemand& demand, const cpu::HostMemory& host);
/// One line per part, then what is needed and what is there.
std::string memory_table(const MemoryDemand& demand, const MemoryPlan& plan);
/// One sentence: how to make a plan that does not fit fit.
std::string memory_fix(const MemoryDemand& demand, const MemoryPlan& plan);

/// kResourceExhausted with table and sentence when the demand does not fit this machine now.
Result<void> require_memory(const MemoryDemand& demand);

/// "1.5 GiB"
std::string bytes_text(size_t bytes);

}  // namespace tandem::apps
