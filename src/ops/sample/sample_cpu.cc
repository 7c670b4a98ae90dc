// Contract   one token per row of logits, see sample.h
// Shapes     any rows, each with its own parameters
// Work       a few passes over the vocabulary per row; rows run side by side
// Roof       one core's passes: a row is one task, so fewer rows than threads leave some idle
// Plan       a task per row; candidates come from a heap, so that a draw which ends early sorts
//            only what it looked at; masses are added in float64 in a fixed order
// Measured   not alone yet; its part of a step: tandem bench engine --ops
// Reference  sample_test.cc, philox_test.cc
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/cpu_device.h"
#include "cpu/vector.h"
#include "ops/sample/candidates.h"
#include "ops/sample/philox.h"
#include "ops/sample/sample.h"

namespace tandem::ops {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// One worker's memory: [vocabulary] each.
struct Workspace {
  float* logits;    // after bias, penalties and masks; then probabilities
  int32_t* counts;  // occurrences in the generated tokens
  int32_t* ids;
};

bool usable(const float* logits, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!(logits[i] < std::numeric_limits<float>::infinity())) return false;  // NaN or +inf
  }
  return true;
}

void penalise(const SampleRow& row, int64_t vocabulary, Workspace& w) {
  for (const TokenBias& bias : row.bias) {
    if (bias.token >= 0 && bias.token < vocabulary) w.logits[bias.token] += bias.bias;
  }
  const bool repetition = row.repetition_penalty != 1.0f;
  if (!repetition && row.presence_penalty == 0.0f && row.frequency_penalty == 0.0f) return;
  std::fill_n(w.counts, vocabulary, 0);
  if (repetition) {
    // Each token once, however often it occurs.
    for (const auto& tokens : {row.prompt, row.generated}) {
      for (TokenId token : tokens) {
        if (w.counts[token]++ > 0) continue;
        float& logit = w.logits[token];
        logit = logit > 0.0f ? logit / row.repetition_penalty : logit * row.repetition_penalty;
      }
    }
    std::fill_n(w.counts, vocabulary, 0);
  }
  for (TokenId token : row.generated) {
    if (w.counts[token]++ == 0) w.logits[token] -= row.presence_penalty;
    w.logits[token] -= row.frequency_penalty;
  }
}

TokenId draw(const SampleRow& row, int32_t vocabulary, Workspace& w) {
  const auto best = static_cast<TokenId>(std::max_element(w.logits, w.logits + vocabulary) -
                                         w.logits);  // the first on ties
  if (w.logits[best] == kMinusInfinity) return -1;
  if (row.temperature == 0.0f) return best;

  const float top = w.logits[best];
  for (int32_t i = 0; i < vocabulary; ++i) {
    w.logits[i] =
        w.logits[i] == kMinusInfinity ? kMinusInfinity : (w.logits[i] - top) / row.temperature;
  }
  cpu::exp_shifted(w.logits, w.logits, 0.0f, vocabulary);
  double total = 0.0;
  for (int32_t i = 0; i < vocabulary; ++i) total += double{w.logits[i]};

  // How many of the sorted tokens are kept, and their mass.
  Candidates sorted(w.logits, w.ids, vocabulary);
  const int32_t count_max = row.top_k == 0 ? vocabulary : std::min(row.top_k, vocabulary);
  const double threshold = double{row.min_p} * double{w.logits[best]};
  const bool keeps_all = count_max == vocabulary && row.top_p >= 1.0f && row.min_p == 0.0f;
  double mass = keeps_all ? total : 0.0;
  if (!keeps_all) {
    double limited = 0.0;  // top_p is a share of what top_k left
    if (row.top_p >= 1.0f || count_max == vocabulary) limited = total;
    if (limited == 0.0) {
      for (int32_t i = 0; i < count_max; ++i) limited += double{w.logits[sorted.at(i)]};
    }
    for (int32_t i = 0; i < count_max; ++i) {
      const double p = double{w.logits[sorted.at(i)]};
      if (i > 0 && (p == 0.0 || p < threshold || mass >= double{row.top_p} * limited)) break;
      mass += p;
    }
  }
  const double target = uniform(row.seed, row.choice_index, row.position) * mass;
  double cumulative = 0.0;
  for (int32_t i = 0; i < vocabulary; ++i) {
    const TokenId token = sorted.at(i);
    const double p = double{w.logits[token]};
    if (p == 0.0) break;
    cumulative += p;
    if (cumulative > target) return token;
  }
  return best;  // rounding at the very end of the distribution
}

void add_logprobs(const SampleRow& row, const float* logits, int64_t vocabulary, SampledRow& out) {
  const double top = double{cpu::max_value(logits, vocabulary)};
  double sum = 0.0;
  for (int64_t i = 0; i < vocabulary; ++i) sum += std::exp(double{logits[i]} - top);
  const double normaliser = top + std::log(sum);
  const auto logprob = [&](TokenId token) {
    return static_cast<float>(double{logits[token]} - normaliser);
  };
  out.logprob = logprob(out.token);
  // Insertion into a short sorted list.
  const int32_t count_max = std::min<int32_t>(row.logprobs_count, static_cast<int32_t>(vocabulary));
  int32_t count = 0;
  for (TokenId token = 0; token < static_cast<TokenId>(vocabulary) && count_max > 0; ++token) {
    if (count == count_max && !(logits[token] > logits[out.top_storage[count - 1].token])) continue;
    int32_t at = count < count_max ? count++ : count - 1;
    for (; at > 0 && logits[token] > logits[out.top_storage[at - 1].token]; --at) {
      out.top_storage[at] = out.top_storage[at - 1];
    }
    out.top_storage[at] = {.token = token, .logprob = 0.0f};
  }
  for (int32_t i = 0; i < count; ++i)
    out.top_storage[i].logprob = logprob(out.top_storage[i].token);
  out.top_count = count;
}

void sample_row(const SampleRow& row, const float* logits, int64_t vocabulary, Workspace& w,
                SampledRow& out) {
  out.token = -1;
  out.logprob = 0.0f;
  out.top_count = 0;
  out.finite = usable(logits, vocabulary);
  if (!out.finite) return;
  std::copy_n(logits, vocabulary, w.logits);
  penalise(row, vocabulary, w);
  for (TokenId token : row.masked_tokens) w.logits[token] = kMinusInfinity;
  if (row.vocabulary_limit > 0 && row.vocabulary_limit < vocabulary) {
    std::fill(w.logits + row.vocabulary_limit, w.logits + vocabulary, kMinusInfinity);
  }
  out.token = draw(row, static_cast<int32_t>(vocabulary), w);
  out.finite = out.token >= 0;
  if (out.finite && row.logprobs_count >= 0) add_logprobs(row, logits, vocabulary, out);
}

}  // namespace

Result<void> sample_cpu(Stream& stream_any, const SampleArgs& args) {
  cpu::CpuStream& stream = cpu::cpu_stream(stream_any);
  const int64_t vocabulary = args.logits.shape[1];
  const size_t array_bytes = (static_cast<size_t>(vocabulary) * 4 + 63) / 64 * 64;
  std::byte* scratch =
      stream.scratch(3 * array_bytes * static_cast<size_t>(stream.team().threads_count()));
  stream.team().parallel_for(args.logits.shape[0], [&](int64_t r, int worker) {
    std::byte* at = scratch + 3 * array_bytes * static_cast<size_t>(worker);
    Workspace w{reinterpret_cast<float*>(at), reinterpret_cast<int32_t*>(at + array_bytes),
                reinterpret_cast<int32_t*>(at + 2 * array_bytes)};
    const auto row = static_cast<size_t>(r);
    sample_row(args.rows[row], args.logits.row(r), vocabulary, w, args.out[row]);
  });
  return {};
}

}  // namespace tandem::ops
