#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// Chooses each token's experts: softmax over all experts in f32, the top k (the lower expert id
/// wins a tie), divided by their sum if `renormalise`. The k entries of a token are written in
/// ascending expert id: that is the order every later sum uses, on one rank and on many.
/// A NaN or +inf among the logits makes all weights of its token NaN; the ids stay k distinct ones.
struct RouteArgs {
  TensorView<const float, 2> logits;  ///< [tokens, experts]
  bool renormalise = true;
  TensorView<int32_t, 2> expert_ids;  ///< [tokens, k], out
  TensorView<float, 2> weights;       ///< [tokens, k], out
};

Result<void> route(Stream& stream, const RouteArgs& args);

}  // namespace tandem::ops
