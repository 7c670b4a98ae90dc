#pragma once

#include <cstdint>

#include "device/dtype.h"

/// Row-sized vector primitives, compiled for several instruction sets (Highway) and chosen at run
/// time. Every function works on contiguous rows of `n` elements and gives the same bits for the
/// same row whatever surrounds it. In-place use (out == an input) is allowed.
namespace tandem::cpu {

float sum_of_squares(const float* x, int64_t n);
float max_value(const float* x, int64_t n);  ///< n >= 1

/// out = x * scale * weight
void scale_row(float* out, const float* x, float scale, const float* weight, int64_t n);
/// y += x
void add(float* y, const float* x, int64_t n);
/// out = x + y
void add(float* out, const float* x, const float* y, int64_t n);
/// out = x * scale
void scale(float* out, const float* x, float scale, int64_t n);
void scale(float* out, const bf16* x, float scale, int64_t n);
/// out = exp(x - shift); returns the sum of out. exp is accurate to 2 ulp; x = -inf gives 0, NaN
/// stays NaN.
float exp_shifted(float* out, const float* x, float shift, int64_t n);
/// out = gate / (1 + exp(-gate)) * up
void silu_mul(float* out, const float* gate, const float* up, int64_t n);

void to_bf16(bf16* out, const float* x, int64_t n);  ///< nearest even
void to_float(float* out, const bf16* x, int64_t n);
/// x rounded to bf16 and back
void round_to_bf16(float* out, const float* x, int64_t n);

/// Rotates half-split pairs in place: (x[i], x[i+half]) by the angle of cos[i], sin[i].
void rotate_pairs(float* x, const float* cos, const float* sin, int64_t half);

}  // namespace tandem::cpu
