#include "apps/bench_model.h"

#include <algorithm>

#include "model/random_source.h"
#include "model/safetensors_source.h"

namespace tandem::apps {
namespace {

constexpr uint64_t kWeightSeed = 1;

bool has_weights(const std::filesystem::path& folder) {
  return std::ranges::any_of(std::filesystem::directory_iterator(folder), [](const auto& entry) {
    return entry.path().extension() == ".safetensors";
  });
}

}  // namespace

Result<BenchModel> BenchModel::load(const Options& options) {
  BenchModel loaded;
  loaded.files = TANDEM_TRY(model::ModelFiles::open(options.folder));
  loaded.dtype = options.device.compute();
  loaded.device = TANDEM_TRY(make_device(options.device));
  const auto pack = [&](model::WeightSource& source) {
    return model::Qwen3::load(*loaded.device, loaded.files.config, source,
                              {.compute = loaded.dtype, .positions_max = options.positions_max});
  };
  loaded.random_weights = !has_weights(loaded.files.folder);
  if (loaded.random_weights) {
    model::RandomSource source(loaded.files.config, kWeightSeed);
    loaded.model = TANDEM_TRY(pack(source));
  } else {
    auto source = TANDEM_TRY(model::SafetensorsSource::open(loaded.files.folder));
    loaded.model = TANDEM_TRY(pack(source));
  }
  return loaded;
}

}  // namespace tandem::apps
