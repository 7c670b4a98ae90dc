#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::ops {

/// The vocabulary in order of falling probability (lower ids first on ties), one token at a time:
/// a heap over ids, so that a draw which ends early sorts only what it looked at.
class Candidates {
 public:
  /// `ids` is scratch for `count` ids; `probabilities[id]` must not change while this lives.
  Candidates(const float* probabilities, int32_t* ids, int32_t count)
      : probabilities_(probabilities), ids_(ids), left_(count), count_(count) {
    for (int32_t i = 0; i < count; ++i) ids_[i] = i;
    std::make_heap(ids_, ids_ + left_, less());
  }
  /// The i-th most likely token, i < count.
  int32_t at(int32_t i) {
    while (count_ - left_ <= i) {
      std::pop_heap(ids_, ids_ + left_, less());
      --left_;
    }
    return ids_[count_ - 1 - i];
  }

 private:
  struct Less {
    const float* p;
    bool operator()(int32_t a, int32_t b) const { return p[a] < p[b] || (p[a] == p[b] && a > b); }
  };
  Less less() const { return {probabilities_}; }

  const float* probabilities_;
  int32_t* ids_;
  int32_t left_;  // still in the heap; the popped ones follow, most likely last
  int32_t count_;
};

}  // namespace tandem::ops
