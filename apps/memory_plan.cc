#include "apps/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "kv/sidecar.h"

namespace tandem::apps {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// What the program takes beside buffers, from above: code, stacks, queues and a tokenizer of
/// 150,000 tokens. Resident memory less the buffers came to 70 MiB with that tokenizer, its peak
/// while parsing included.
constexpr size_t kProgramBytes = 128 * kMiB;
/// Of a worker: attention keeps 256 tokens of K and V as panels, and per row of 16 query tokens of
/// a KV head 256 scores, a query, an output, and two numbers; all but the last padded, and as f32.
size_t attention_worker_bytes(const model::ModelConfig& c) {
  constexpr size_t kTokens = 256;
  constexpr size_t kQueryTokens = 16;
  const auto head = static_cast<size_t>((c.head_dim + 63) / 64 * 64);
  const auto rows = kQueryTokens * static_cast<size_t>(c.heads / c.kv_heads);
  return sizeof(float) * (2 * kTokens * head + rows * (kTokens + 2 * head + 2)) + 4096;
}

/// Scratch is what the hungriest op asks for: sampling three arrays of the vocabulary per worker; a
/// bf16 product a rounded copy of its rows; the experts' first product, in either type, a row for
/// every expert of a token. The sum is not less than the maximum.
size_t scratch_of(const MemoryDemand& demand) {
  const model::ModelConfig& c = demand.config;
  constexpr size_t kRowPadding = 128;  // ops/linear/rows_cpu.h: an odd number of cache lines
  const auto row_bytes = [&](int64_t elements) {
    return static_cast<size_t>(elements) * dtype_bytes(demand.compute) + kRowPadding;
  };
  const auto experts = static_cast<size_t>(c.experts_per_token);
  size_t row = experts * row_bytes(c.hidden_size);
  if (demand.compute == DType::kBF16) {
    row = std::max({row, experts * row_bytes(c.moe_intermediate_size), row_bytes(c.hidden_size),
                    row_bytes(c.heads * c.head_dim), row_bytes(c.intermediate_size)});
  }
  const size_t rows = static_cast<size_t>(demand.step.tokens_max) * row;
  const size_t worker =
      attention_worker_bytes(c) + 3 * static_cast<size_t>(c.vocab_size) * sizeof(float);
  const auto ranks = static_cast<size_t>(demand.ranks_count);
  return ranks * (rows + static_cast<size_t>(demand.threads_count) * worker);
}

/// The shards of this process. The layout fits the model.
std::vector<model::Shard> shards_of(const MemoryDemand& demand) {
  std::vector<model::Shard> shards;
  for (int i = 0; i < demand.ranks_count; ++i) {
    shards.push_back(
        model::Shard::create(demand.config, demand.layout, demand.first_rank + i).value());
  }
  return shards;
}

/// Of one rank.
size_t sidecar_bytes_of(const MemoryDemand& demand, const model::Shard& shard) {
  if (!demand.receives_kv) return 0;
  const kv::KvLayout layout =
      engine::KvStorage::group_layout(shard, {.dtype = demand.step.kv_dtype,
                                              .pages_count = demand.step.pages_total,
                                              .page_tokens = demand.step.page_tokens});
  return kv::sidecar_records_max(layout, static_cast<uint32_t>(shard.tensor_rank())) *
         sizeof(kv::SidecarRecord);
}

void add_line(std::string& table, const std::string& name, size_t bytes,
              const std::string& note = "") {
  if (bytes == 0) return;
  fmt::format_to(std::back_inserter(table), "  {:<20} {:>12}{}{}\n", name, bytes_text(bytes),
                 note.empty() ? "" : "   ", note);
}

}  // namespace

std::string bytes_text(size_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  auto amount = static_cast<double>(bytes);
  while (amount >= 1024 && unit + 1 < std::size(units)) {
    amount /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", amount, unit == 0 ? 0 : 1, units[unit]);
}

MemoryPlan plan_memory(const MemoryDemand& demand, const cpu::HostMemory& host) {
  MemoryPlan plan{.heap_bytes = demand.heap_bytes * static_cast<size_t>(demand.ranks_count),
                  .scratch_bytes = scratch_of(demand),
                  .program_bytes = kProgramBytes + demand.verb_bytes,
                  .host = host};
  for (const model::Shard& shard : shards_of(demand)) {
    const model::WeightBytes weights = model::Qwen3::bytes_needed(
        shard, {.compute = demand.compute, .positions_max = int64_t{demand.model_length_max}});
    for (model::WeightPart part : model::kWeightParts) plan.weights[part] += weights[part];
    const engine::StepMemory::Bytes step = engine::StepMemory::bytes_needed(shard, demand.step);
    plan.step.kv += step.kv;
    plan.step.activations += step.activations;
    plan.step.logits += step.logits;
    plan.step.index += step.index;
    plan.sidecar_bytes += sidecar_bytes_of(demand, shard);
  }
  return plan;
}

std::string memory_table(const MemoryDemand& demand, const MemoryPlan& plan) {
  const engine::StepMemory::Options& step = demand.step;
  std::string table = fmt::format("memory with {} weights\n", dtype_name(demand.compute));
  for (model::WeightPart part : model::kWeightParts) {
    add_line(table, model::weight_part_name(part), plan.weights[part]);
  }
  add_line(table, "weights in all", plan.weights.total());
  add_line(table, "kv cache", plan.step.kv,
           fmt::format("{} pages of {} tokens, {} a token", step.pages_total, step.page_tokens,
                       bytes_text(plan.step.kv /
                                  static_cast<size_t>(step.pages_total * step.page_tokens))));
  add_line(table, "sidecars of kv", plan.sidecar_bytes);
  add_line(table, "activations", plan.step.activations - plan.step.logits,
           fmt::format("steps of {} tokens", step.tokens_max));
  add_line(table, "logits", plan.step.logits, fmt::format("{} rows", step.rows_max));
  add_line(table, "page tables", plan.step.index);
  add_line(table, "heaps of ranks", plan.heap_bytes, fmt::format("{} ranks", demand.ranks_count));
  add_line(table, "scratch", plan.scratch_bytes, "estimated from above");
  add_line(table, "program", plan.program_bytes, "estimated from above");
  add_line(table, "needed", plan.needed_bytes());
  const bool in_group = plan.host.group_bytes && *plan.host.group_bytes < plan.host.machine_bytes;
  fmt::format_to(
      std::back_inserter(table), "  {:<20} {:>12}   {}\n", "available",
      bytes_text(plan.host.available_bytes()),
      in_group ? "limit of the control group, less what it holds" : "MemAvailable of this machine");
  return table;
}

std::string memory_fix(const MemoryDemand& demand, const MemoryPlan& plan) {
  const size_t available = plan.host.available_bytes();
  const size_t fixed = plan.weights.total() + plan.program_bytes;
  if (fixed > available) {
    if (demand.compute == DType::kF32) return "Use --dtype bf16, or a machine with more memory.";
    return fmt::format("The weights alone do not fit: free memory, or use a machine with {}.",
                       bytes_text(plan.needed_bytes()));
  }
  if (demand.size_flags == SizeFlags::kCells) {
    return "Choose shorter --prompts and --contexts, or smaller --batches.";
  }
  const size_t others =
      fixed + plan.scratch_bytes + plan.heap_bytes + plan.step.activations + plan.step.index;
  if (others > available) {
    return demand.size_flags == SizeFlags::kLength
               ? fmt::format("Lower --max-model-len (now {}), or free memory.",
                             demand.model_length_max)
               : fmt::format("Lower --max-num-batched-tokens (now {}) and --max-num-seqs (now {}).",
                             demand.step.tokens_max, demand.step.sequences_max);
  }
  size_t page = plan.sidecar_bytes / static_cast<size_t>(demand.step.pages_total);
  for (const model::Shard& shard : shards_of(demand)) {
    page += engine::KvStorage::bytes_per_page(shard, demand.step.kv_dtype, demand.step.page_tokens);
  }
  // A sixteenth is left, since what is available moves from second to second.
  const size_t tokens =
      (available - others) / 16 * 15 / page * static_cast<size_t>(demand.step.page_tokens);
  if (tokens < 2) return "Not even one page of KV fits: free memory.";
  const std::string length =
      tokens < demand.model_length_max ? fmt::format(" --max-model-len {}", tokens) : "";
  if (demand.size_flags == SizeFlags::kLength) return fmt::format("It fits with{}.", length);
  return fmt::format("It fits with --kv-cache-tokens {}{}.", tokens, length);
}

Result<void> require_memory(const MemoryDemand& demand) {
  const MemoryPlan plan = plan_memory(demand, cpu::read_host_memory());
  if (plan.fits()) return {};
  return make_error(Code::kResourceExhausted,
                    fmt::format("the model and its KV cache do not fit in memory\n{}{}",
                                memory_table(demand, plan), memory_fix(demand, plan)));
}

}  // namespace tandem::apps
