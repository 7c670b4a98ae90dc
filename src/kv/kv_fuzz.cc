// Goal: no order of calls makes CacheManager differ from the model of cache_model.h.
// Method: the first bytes choose the options, each later byte one decision of cache_exercise.h.
#include <cstddef>
#include <cstdint>

#include "kv/cache_exercise.h"

namespace {

uint64_t one_bit(std::span<const std::byte> bytes, uint64_t seed) {
  return tandem::kv::xxh3_hash(bytes, seed) & 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = 0;
  auto choose = [&](uint32_t limit) -> uint32_t { return at < size ? data[at++] % limit : 0; };
  tandem::kv::CacheManager::Options options{.pages_total = 1 + choose(24),
                                            .page_tokens = 1 + choose(4),
                                            .sequences_max = 1 + choose(5),
                                            .leases_max = choose(5),
                                            .quarantine_pages_max = choose(6),
                                            .prefix_caching = choose(8) != 0,
                                            .seed = choose(2),
                                            .hash = tandem::kv::xxh3_hash};
  if (choose(2) == 0) options.hash = one_bit;
  tandem::kv::CacheExercise exercise(options, choose);
  while (at < size) exercise.step();
  exercise.finish_all();
  return 0;
}
