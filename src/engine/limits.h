#pragma once

#include <cstdint>

namespace tandem::engine {

/// Everything that bounds an engine. Fixed at start; all memory follows from it.
struct Limits {
  uint32_t model_length_max = 0;        ///< prompt and generated tokens of one sequence
  uint32_t sequences_max = 32;          ///< running at once
  uint32_t step_tokens_max = 512;       ///< tokens of one step, >= sequences_max
  uint32_t queue_requests_max = 1024;   ///< accepted and not yet running
  uint64_t queue_tokens_max = 8 << 20;  ///< prompt tokens of those
  uint32_t page_tokens = 16;            ///< tokens of one KV page
  uint32_t pages_total = 0;             ///< KV pages; at least one sequence of full length fits
  uint32_t vocabulary_size = 0;         ///< rows of the embedding table
  uint32_t tokenizer_size = 0;          ///< ids from here on have no text and are never sampled
  bool prefix_caching = true;
  uint64_t prefix_seed = 0;  ///< keys of the prefix index; random per process
  /// Leases and quarantines of pages that other engines may touch, and requests that may become
  /// one, at a time; 0: it takes part in no hand-off.
  uint32_t leases_max = 0;
  uint32_t quarantine_pages_max = 0;  ///< above so many in quarantine nothing is admitted
  uint32_t stall_ms_max = 60000;      ///< a step that takes longer makes the engine not ready
};

}  // namespace tandem::engine
