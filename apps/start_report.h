#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
};

/// The block that `tandem serve` prints once it serves: everything that decides what it can hold
/// and how fast it is, one line per fact, named as the flag that sets it.
std::string start_report(const StartFacts& facts, const LayoutOptions& layout);

}  // namespace tandem::apps
