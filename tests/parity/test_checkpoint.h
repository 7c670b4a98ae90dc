#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_device.h"
#include "engine/scorer.h"
#include "model/qwen3.h"
#include "model/weight_source.h"
#include "tests/parity/golden_file.h"

namespace tandem::parity {

inline const std::string kGolden = "tests/parity/golden/";
inline const std::string kTinyMoe = "models/tiny-moe";

/// A model on two threads, ready to score texts.
struct TestCheckpoint {
  static Result<TestCheckpoint> load(const model::ModelConfig& config, model::WeightSource& source,
                                     DType compute, uint32_t length_max);
  static Result<TestCheckpoint> load(const std::string& folder, DType compute, uint32_t length_max);

  std::unique_ptr<cpu::CpuDevice> device;
  std::unique_ptr<model::Qwen3> model;
  std::unique_ptr<engine::Scorer> scorer;
};

/// What one row of ours has: its squared distance to the golden row and the experts of all layers.
struct ScoredRow {
  double squared_error = 0;
  double squared_norm = 0;  // of the golden row
  std::vector<int32_t> experts;
};

/// Scores the golden's text and compares its rows.
std::vector<ScoredRow> compare(TestCheckpoint& checkpoint, const GoldenLogits& golden);

/// Sums of squares over rows; error() is the relative Frobenius error.
struct Pooled {
  void add(double error, double norm) {
    squared_error += error;
    squared_norm += norm;
    ++rows;
  }
  double error() const;

  double squared_error = 0;
  double squared_norm = 0;
  int rows = 0;
};

}  // namespace tandem::parity
