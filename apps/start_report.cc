#include "apps/start_report.h"

#include <fmt/format.h>

#include <utility>

#include "base/list_text.h"

namespace tandem::apps {
namespace {

constexpr size_t kValueColumn = 24;  // behind the longest name

std::string layout_line(const LayoutOptions& options) {
  const int ranks = options.layout.ranks_count();
  if (ranks == 1) return "1 rank";
  return fmt::format("{} ranks in {} process{}: tensor-parallel {} x data-parallel {}", ranks,
                     options.nodes_count, options.nodes_count == 1 ? "" : "es",
                     options.layout.tensor_parallel, options.layout.data_parallel);
}

std::string workers_line(const LaunchOptions& launch) {
  if (!launch.starts_workers()) return "workers of a cluster";
  return fmt::format(
      "{} prefill worker(s) of tensor-parallel {}, {} decode worker(s) of "
      "tensor-parallel {} x data-parallel {}",
      launch.prefill_workers, launch.prefill_tensor_parallel, launch.decode_workers,
      launch.decode_tensor_parallel, launch.decode_data_parallel);
}

/// One line per fact, values in one column.
std::string block(const std::vector<std::pair<const char*, std::string>>& lines) {
  std::string text;
  for (const auto& [name, value] : lines) {
    std::string line = name;
    line.resize(kValueColumn, ' ');
    text += line + value + '\n';
  }
  return text;
}

}  // namespace

/// An IPv6 address stands in brackets (RFC 3986, section 3.2.2).
std::string StartFacts::address() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", port);
}

std::string start_report(const StartFacts& facts, const LayoutOptions& layout) {
  const engine::Limits& limits = facts.limits;
  // The engine's limits hold for each group of ranks that has requests of its own.
  const std::string each = layout.layout.data_parallel == 1 ? "" : " in each data-parallel group";
  return block({{"model", facts.folder},
                {"served-model-name", list_text(facts.names)},
                {"dtype", dtype_name(facts.compute)},
                {"layout", layout_line(layout)},
                {"kv-cache-tokens", fmt::format("{} ({} pages of {}){}",
                                                uint64_t{limits.pages_total} * limits.page_tokens,
                                                limits.pages_total, limits.page_tokens, each)},
                {"max-model-len", fmt::format("{}", limits.model_length_max)},
                {"max-num-seqs", fmt::format("{}{}", limits.sequences_max, each)},
                {"max-num-batched-tokens", fmt::format("{}{}", limits.step_tokens_max, each)},
                {"threads", fmt::format("{}{}", facts.threads_per_rank,
                                        layout.layout.ranks_count() == 1 ? "" : " per rank")},
                {"matrix-path", facts.matrix_path}}) +
         fmt::format("serving at {}\n", facts.address());
}

std::string cluster_report(const StartFacts& facts, const LaunchOptions& launch) {
  return block({{"model", facts.folder},
                {"served-model-name", list_text(facts.names)},
                {"layout", workers_line(launch)},
                {"max-model-len", fmt::format("{}", facts.limits.model_length_max)}}) +
         fmt::format("serving at {}\n", facts.address());
}

std::string example_call(const StartFacts& facts) {
  const std::string head =
      fmt::format("  \"model\": \"{}\", \"temperature\": 0,\n", facts.names.front());
  if (!facts.has_chat_template) {
    return fmt::format(
        "curl {}/v1/completions -H 'Content-Type: application/json' -d '{{\n{}"
        "  \"prompt\": \"Once upon a time\"}}'\n",
        facts.address(), head);
  }
  return fmt::format(
      "curl {}/v1/chat/completions -H 'Content-Type: application/json' -d '{{\n{}"
      "  \"messages\": [{{\"role\": \"user\", \"content\": \"What is 12 + 30?\"}}],\n"
      "  \"chat_template_kwargs\": {{\"enable_thinking\": false}}}}'\n",
      facts.address(), head);
}

}  // namespace tandem::apps
