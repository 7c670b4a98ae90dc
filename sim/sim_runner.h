#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "engine/kv_rank.h"
#include "kv/kv_layout.h"

namespace tandem::sim {

/// Tells what is wrong with the cluster; the run has failed.
using Find = std::function<void(const std::string&)>;

/// What K or V of one head is at a position whose token left the model in `state`: the state itself
/// for K of layer 0 and head 0, else a hash of it and the place.
uint64_t kv_value(uint64_t state, uint32_t layer, bool is_value, uint32_t head);

/// The K and V of one rank in plain memory: a number of 8 bytes per head and token.
class SimKvRank final : public engine::KvRank {
 public:
  SimKvRank(const kv::KvLayout& layout, uint32_t rank);

  std::span<std::byte> memory() override { return std::as_writable_bytes(std::span(values_)); }
  Result<void> digest(const Slices& slices, std::span<uint64_t> digests) override;

  kv::HeadRange heads() const { return layout_.rank_heads[rank_]; }
  /// `head` is of the whole model.
  uint64_t& value(uint32_t layer, bool is_value, PageId page, uint32_t head, uint32_t token);

 private:
  const kv::KvLayout layout_;
  const uint32_t rank_;
  std::vector<uint64_t> values_;  // [layers][K, V][pages_total][heads of the rank][page_tokens]
};

/// engine::testing::HashModel over the memory of a tensor-parallel group. Every step first holds
/// all that it reads, in every layer and head of every rank, against what the tokens say, so that a
/// page that was lost, overwritten or given away is found at once. The next token follows from the
/// state that lies in memory, not from the tokens.
class SimRunner final : public engine::StepRunner {
 public:
  SimRunner(const kv::KvLayout& layout, std::string name, Find find);

  /// Decides whether the next step is lost; no by default.
  std::function<bool()> loses_step = [] { return false; };

  Result<void> run(uint64_t step, std::span<const engine::BatchItem> items,
                   std::span<ops::SampledRow> sampled) override;
  /// The number of the step whose K and V are not all written; 0: none.
  uint64_t step() const { return step_; }
  /// That step writes nothing.
  bool is_lost() const { return parts_.empty(); }
  /// The rank now has K and V of this layer.
  void write(uint32_t rank, uint32_t layer);
  /// All was written: it is read once more, as the step may have read it just now.
  void end_step();

  uint32_t layers() const { return layout_.layers; }
  std::vector<std::unique_ptr<SimKvRank>>& ranks() { return ranks_; }

 private:
  /// A part of the step under way.
  struct Part {
    std::vector<PageId> pages;
    uint32_t start = 0;
    std::vector<uint64_t> states;  ///< after each token
  };
  void check(const Part& part, uint32_t tokens_end, const char* when);

  const kv::KvLayout layout_;
  const std::string name_;
  const Find find_;
  std::vector<std::unique_ptr<SimKvRank>> ranks_;
  std::vector<Part> parts_;
  uint64_t step_ = 0;
};

}  // namespace tandem::sim
