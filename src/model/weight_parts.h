#pragma once

#include <array>
#include <cstddef>

namespace tandem::model {

/// The parts of a model that people ask the size of.
enum class WeightPart {
  kEmbedding,
  kAttention,
  kRouter,
  kExperts,
  kDenseMlp,
  kNorms,
  kHead,
  kRotary,  ///< cosines and sines: made at load, in no checkpoint
};

constexpr std::array kWeightParts{
    WeightPart::kEmbedding, WeightPart::kAttention, WeightPart::kRouter, WeightPart::kExperts,
    WeightPart::kDenseMlp,  WeightPart::kNorms,     WeightPart::kHead,   WeightPart::kRotary};

constexpr const char* weight_part_name(WeightPart part) {
  switch (part) {
    case WeightPart::kEmbedding:
      return "embedding";
    case WeightPart::kAttention:
      return "attention";
    case WeightPart::kRouter:
      return "router";
    case WeightPart::kExperts:
      return "experts";
    case WeightPart::kDenseMlp:
      return "dense mlp";
    case WeightPart::kNorms:
      return "norms";
    case WeightPart::kHead:
      return "head";
    case WeightPart::kRotary:
      return "rotary table";
  }
  return "?";
}

/// Bytes of weights by part.
struct WeightBytes {
  size_t& operator[](WeightPart part) { return bytes[static_cast<size_t>(part)]; }
  size_t operator[](WeightPart part) const { return bytes[static_cast<size_t>(part)]; }
  size_t total() const {
    size_t sum = 0;
    for (size_t part : bytes) sum += part;
    return sum;
  }

  std::array<size_t, kWeightParts.size()> bytes{};
};

}  // namespace tandem::model
