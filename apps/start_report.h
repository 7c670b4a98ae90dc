#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/cluster_flags.h"
#include "apps/run_ranks.h"

namespace tandem::apps {

/// What a server found or chose when it started, besides what its options say.
struct StartFacts {
  std::string folder;              ///< of the model
  std::vector<std::string> names;  ///< in the API
  DType compute = DType::kBF16;
  engine::Limits limits;
  int threads_per_rank = 1;
  std::string matrix_path;
  std::string host;
  uint16_t port = 0;
  bool has_chat_template = true;

  /// "http://127.0.0.1:8000"
  std::string address() const;
};

/// The block that `tandem serve` prints once it serves: everything that decides what it can hold
/// and how fast it is, one line per fact, named as the flag that sets it.
std::string start_report(const StartFacts& facts, const LayoutOptions& layout);

/// The same of a server whose workers are other processes, which say the rest of themselves.
std::string cluster_report(const StartFacts& facts, const LaunchOptions& launch);

/// A command that a newcomer can paste: a chat where the model has a template for it.
std::string example_call(const StartFacts& facts);

}  // namespace tandem::apps
