#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace tandem::model {
namespace {

/// Where yarn's ramp from kept to interpolated frequencies begins and ends, in pairs of dimensions.
struct Ramp {
  double low;
  double high;
};

Ramp yarn_ramp(const RopeConfig& rope) {
  const double dims = static_cast<double>(rope.rotary_dim);
  // The dimension whose frequency makes `rotations` turns in the context of pre-training.
  const auto dimension = [&](double rotations) {
    const double turns =
        static_cast<double>(rope.original_max_position) / (rotations * 2 * std::numbers::pi);
    return dims * std::log(turns) / (2 * std::log(rope.theta));
  };
  Ramp ramp{dimension(rope.beta_fast), dimension(rope.beta_slow)};
  if (rope.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp.low = std::max(ramp.low, 0.0);
  ramp.high = std::min(ramp.high, dims - 1);
  // An empty ramp becomes a step; transformers uses the same width.
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

}  // namespace

std::vector<float> make_inverse_frequencies(const RopeConfig& rope) {
  TANDEM_CHECK(rope.rotary_dim > 0 && rope.rotary_dim % 2 == 0, "dimensions rotate in pairs");
  const int64_t pairs = rope.rotary_dim / 2;
  const float theta = static_cast<float>(rope.theta);
  const float factor = static_cast<float>(rope.factor);
  const Ramp ramp = rope.scaling == RopeConfig::Scaling::kYarn ? yarn_ramp(rope) : Ramp{0, 1};
  const float ramp_low = static_cast<float>(ramp.low);
  const float ramp_width = static_cast<float>(ramp.high - ramp.low);

  std::vector<float> frequencies(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
    // Through double: correctly rounded, which a library's powf need not be.
    const float period = static_cast<float>(std::pow(double{theta}, double{exponent}));
    float frequency = 1.0f / period;
    if (rope.scaling == RopeConfig::Scaling::kLinear) frequency /= factor;
    if (rope.scaling == RopeConfig::Scaling::kYarn) {
      const float progress =
          std::clamp((static_cast<float>(i) - ramp_low) / ramp_width, 0.0f, 1.0f);
      const float kept = 1.0f - progress;
      const float interpolated = 1.0f / (factor * period);
      frequency = interpolated * (1.0f - kept) + frequency * kept;
    }
    frequencies[static_cast<size_t>(i)] = frequency;
  }
  return frequencies;
}

size_t rope_table_elements(const RopeConfig& rope, int64_t positions) {
  return static_cast<size_t>(positions * rope.rotary_dim);
}

std::vector<float> make_rope_table(const RopeConfig& rope, int64_t positions) {
  TANDEM_CHECK(positions >= 0, "a table has no negative length");
  const std::vector<float> frequencies = make_inverse_frequencies(rope);
  const size_t pairs = frequencies.size();
  const float scale = static_cast<float>(rope.attention_factor);
  std::vector<float> table(rope_table_elements(rope, positions));
  for (int64_t position = 0; position < positions; ++position) {
    float* cosines = table.data() + static_cast<size_t>(position) * 2 * pairs;
    float* sines = cosines + pairs;
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<float>(position) * frequencies[i];
      cosines[i] = static_cast<float>(std::cos(angle)) * scale;
      sines[i] = static_cast<float>(std::sin(angle)) * scale;
    }
  }
  return table;
}

}  // namespace tandem::model
