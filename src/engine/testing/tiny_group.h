#pragma once

#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "comm/thread_group.h"
#include "cpu/cpu_device.h"
#include "engine/group_runner.h"
#include "engine/model_runner.h"
#include "engine/rank_peers.h"
#include "model/model_files.h"
#include "model/safetensors_source.h"

namespace tandem::engine::testing {

/// The trained models/tiny-moe on a tensor-parallel group of one or more ranks, which are threads;
/// its steps are run from the thread that made it.
class TinyGroup {
 public:
  TinyGroup(int tensor_parallel, const Limits& limits, DType compute)
      : layout_{.tensor_parallel = tensor_parallel},
        limits_(limits),
        compute_(compute),
        ranks_(static_cast<size_t>(tensor_parallel)) {
    if (tensor_parallel == 1) {
      make(ranks_[0], 0);
      return;
    }
    const auto step = StepMemory::options_of(limits, compute);
    group_ = comm::ThreadGroup::create(
                 {.ranks_count = tensor_parallel,
                  .heap_bytes = RankLinks::heap_bytes(shard(0), compute, step).value()})
                 .value();
    std::latch made(tensor_parallel);
    for (int rank = 0; rank < tensor_parallel; ++rank) {
      threads_.emplace_back([this, rank, &made] {
        Rank& own = ranks_[static_cast<size_t>(rank)];
        make(own, rank);
        made.count_down();
        if (rank == 0) return;
        const Result<void> followed = follow(*own.runner, *own.peers, limits_);
        TANDEM_CHECK(followed.ok(), followed.error().what);
      });
    }
    made.wait();
    leader_ = std::make_unique<GroupRunner>(*ranks_[0].runner, *ranks_[0].peers, limits,
                                            [](const std::optional<Error>&) {});
  }
  /// No rank leaves before all have heard that it is over: to one that still waits it would look
  /// like a loss.
  ~TinyGroup() {
    if (leader_ != nullptr) leader_->leave();
  }

  StepRunner& runner() {
    if (leader_ != nullptr) return *leader_;
    return *ranks_[0].runner;
  }
  uint32_t ranks_count() const { return static_cast<uint32_t>(ranks_.size()); }
  ModelRunner& rank(uint32_t rank) { return *ranks_[rank].runner; }

 private:
  struct Rank {
    std::unique_ptr<cpu::CpuDevice> device;
    std::unique_ptr<model::Qwen3> model;
    std::unique_ptr<RankPeers> peers;
    std::unique_ptr<ModelRunner> runner;
  };

  static Result<std::unique_ptr<model::WeightSource>> open_source() {
    return std::unique_ptr<model::WeightSource>(new model::SafetensorsSource(
        TANDEM_TRY(model::SafetensorsSource::open("models/tiny-moe"))));
  }
  model::Shard shard(int rank) const {
    const auto config = model::ModelFiles::open("models/tiny-moe").value().config;
    return model::Shard::create(config, layout_, rank).value();
  }

  void make(Rank& own, int rank) {
    own.device = cpu::CpuDevice::create({.threads_count = 1}).value();
    const auto source = open_source().value();
    own.model = model::Qwen3::load(*own.device, shard(rank), *source,
                                   {.compute = compute_, .positions_max = limits_.model_length_max})
                    .value();
    model::RankComm* comm = nullptr;
    if (group_ != nullptr) {
      own.peers = RankPeers::create({.rank = rank,
                                     .heap = &group_->heap(rank),
                                     .compute = compute_,
                                     .step = StepMemory::options_of(limits_, compute_),
                                     .make_source = open_source},
                                    *own.model)
                      .value();
      comm = &own.peers->links().comm();
    }
    own.runner = ModelRunner::create(*own.device, *own.model,
                                     {.limits = limits_, .kv_dtype = compute_, .comm = comm})
                     .value();
  }

  const model::Layout layout_;
  const Limits limits_;
  const DType compute_;
  std::unique_ptr<comm::ThreadGroup> group_;
  std::vector<Rank> ranks_;
  std::unique_ptr<GroupRunner> leader_;
  std::vector<std::jthread> threads_;
};

}  // namespace tandem::engine::testing
