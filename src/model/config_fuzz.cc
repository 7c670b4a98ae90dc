// Goal: no text crashes, hangs or overflows the config parser, and what it accepts keeps its
// promises. Start it with fuzz_corpus/config.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/config.h"
#include "model/rope.h"

using tandem::model::ModelConfig;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tandem::Result<ModelConfig> config =
      tandem::model::parse_config({reinterpret_cast<const char*>(data), size});
  if (!config.ok()) {
    if (config.error().what.empty() || config.error().what.size() > 1000) std::abort();
    return 0;
  }
  if (config->heads % config->kv_heads != 0) std::abort();
  if (config->head_dim % 2 != 0 || config->rope.rotary_dim != config->head_dim) std::abort();
  if (config->layer_is_moe.size() != static_cast<size_t>(config->layers_count)) std::abort();
  if (config->experts_per_token > config->experts_count) std::abort();
  tandem::model::make_rope_table(config->rope, 2);
  return 0;
}
