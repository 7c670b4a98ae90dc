#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config.h"

namespace tandem::model {

/// Inverse frequencies [rotary_dim / 2] in the order of the rotated pairs, rounded to f32 step by
/// step as transformers does: pair i of a head turns by position * frequency[i].
std::vector<float> make_inverse_frequencies(const RopeConfig& rope);

/// [positions, rotary_dim]: for each position the cosines of the rotary_dim / 2 angles, then their
/// sines, both times the attention factor. Angles are products in f32 like those of transformers
/// (in higher precision they would differ by up to position * 2^-24); cosine and sine are exact to
/// f32.
std::vector<float> make_rope_table(const RopeConfig& rope, int64_t positions);
/// Elements of that table.
size_t rope_table_elements(const RopeConfig& rope, int64_t positions);

}  // namespace tandem::model
