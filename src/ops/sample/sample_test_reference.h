#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "ops/sample/philox.h"
#include "ops/sample/sample.h"
#include "ops/testing/ops_test_support.h"

/// The formulas of sample.h in float64, one stage after the other, over sorted vectors.
namespace tandem::ops::testing {

inline constexpr double kInfinityF64 = std::numeric_limits<double>::infinity();

/// Bias, penalties and masks in float64.
inline std::vector<double> adjusted(const SampleRow& row, const float* raw, int64_t vocabulary) {
  std::vector<double> x(raw, raw + vocabulary);
  const auto at = [&x](TokenId token) -> double& { return x[static_cast<size_t>(token)]; };
  for (const TokenBias& bias : row.bias) at(bias.token) += double{bias.bias};
  std::set<TokenId> seen(row.prompt.begin(), row.prompt.end());
  seen.insert(row.generated.begin(), row.generated.end());
  for (TokenId token : seen) {
    const double penalty = row.repetition_penalty;
    at(token) = at(token) > 0.0 ? at(token) / penalty : at(token) * penalty;
  }
  std::map<TokenId, int> counts;
  for (TokenId token : row.generated) ++counts[token];
  for (const auto& [token, count] : counts) {
    at(token) -= double{row.presence_penalty} + count * double{row.frequency_penalty};
  }
  for (TokenId token : row.masked_tokens) at(token) = -kInfinityF64;
  for (int64_t i = 0; i < vocabulary; ++i) {
    if (row.vocabulary_limit > 0 && i >= row.vocabulary_limit)
      x[static_cast<size_t>(i)] = -kInfinityF64;
  }
  return x;
}

/// The plain sampler of one row with a temperature above zero.
class ReferenceSampler {
 public:
  ReferenceSampler(const SampleRow& row, const std::vector<double>& logits) : row_(row) {
    ids_.resize(logits.size());
    std::iota(ids_.begin(), ids_.end(), 0);
    std::stable_sort(ids_.begin(), ids_.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    double total = 0.0, total_error = 0.0;
    for (TokenId id : ids_) {
      const double x = (logits[static_cast<size_t>(id)] - logits[static_cast<size_t>(ids_[0])]) /
                       double{row.temperature};
      const double p = std::exp(x);
      p_.push_back(p);
      total += p;
      if (p > 0.0) total_error += p * (std::abs(x) + kRoundingsOfExp + 1) * kRoundF32;
    }
    error_ = 2 * total_error / total + 1e-12;
  }

  /// Every token that is right within the errors of the kernel.
  std::set<TokenId> tokens() const {
    const double min_p_error =
        row_.min_p > 0.0f
            ? (std::abs(std::log(double{row_.min_p})) + kRoundingsOfExp + 2) * kRoundF32
            : 0.0;
    std::set<TokenId> tokens;
    for (double a : {-1.0, 1.0}) {
      for (double b : {-1.0, 1.0}) {
        const size_t count = kept(1.0 + a * error_, 1.0 + b * min_p_error);
        for (double c : {-1.0, 1.0}) tokens.insert(draw(count, c * error_));
      }
    }
    return tokens;
  }

 private:
  /// How many of the sorted tokens top_k, top_p and min_p leave.
  size_t kept(double top_p_factor, double min_p_factor) const {
    size_t count = ids_.size();
    if (row_.top_k > 0) count = std::min(count, static_cast<size_t>(row_.top_k));
    while (count > 1 && p_[count - 1] == 0.0) --count;
    if (row_.top_p < 1.0f) {
      double all = 0.0;
      for (size_t i = 0; i < count; ++i) all += p_[i];
      double mass = 0.0;
      size_t needed = 0;
      while (needed < count && mass < double{row_.top_p} * top_p_factor * all) mass += p_[needed++];
      count = std::max<size_t>(1, needed);
    }
    while (count > 1 && p_[count - 1] < double{row_.min_p} * min_p_factor * p_[0]) --count;
    return count;
  }
  TokenId draw(size_t count, double shift) const {
    double mass = 0.0;
    for (size_t i = 0; i < count; ++i) mass += p_[i];
    const double target = (uniform(row_.seed, row_.choice_index, row_.position) + shift) * mass;
    double sum = 0.0;
    for (size_t i = 0; i < count; ++i) {
      sum += p_[i];
      if (sum > target) return ids_[i];
    }
    return ids_[count - 1];
  }

  const SampleRow& row_;
  std::vector<TokenId> ids_;  // by falling probability
  std::vector<double> p_;     // of them, the largest is 1
  double error_ = 0.0;        // of a share of the mass
};

}  // namespace tandem::ops::testing
