#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/decode_worker.h"
#include "cluster/event_port.h"
#include "cluster/export_port.h"
#include "cluster/prefill_worker.h"
#include "cluster/router.h"
#include "sim/gate.h"
#include "sim/gated_channel.h"
#include "sim/place.h"
#include "sim/sim_engine.h"

namespace tandem::sim {

/// A process that can be stopped and continued; destroying it is its death, at once (SIGKILL).
class Process {
 public:
  Process(Place& place, std::string name) : place_(place), name_(std::move(name)) {}
  virtual ~Process() = default;

  const std::string& name() const { return name_; }
  /// From here on it does nothing. Whoever stops it also cuts its connections off.
  void stop() { gate_.stop(); }
  void resume() { gate_.resume(); }
  bool is_stopped() const { return gate_.is_stopped(); }
  /// What it still has of requests that are over; empty when nothing.
  virtual std::string held() const { return {}; }

 protected:
  void open(rpc::ChannelEvents& events, rpc::MembershipEvents& members, uint64_t generation,
            uint64_t seed);
  /// First of all: the others are told, or not.
  void close() {
    membership_.reset();
    channel_.reset();
  }

  Place& place_;
  const std::string name_;
  Gate gate_{place_.executor};
  std::unique_ptr<GatedMembership> members_;
  std::unique_ptr<rpc::Membership> membership_;
  std::unique_ptr<GatedChannel> channel_;
};

class RouterProcess final : public Process {
 public:
  RouterProcess(Place& place, uint64_t generation, uint64_t seed);
  ~RouterProcess() override;
  cluster::Router& router() { return *router_; }

 private:
  std::unique_ptr<cluster::Router> router_;
};

/// What a worker is in each of its lives.
struct WorkerSpec {
  std::string name;
  rpc::Role role = rpc::Role::kDecode;
  uint32_t groups = 1;  ///< data-parallel ranks
  kv::KvLayout layout;  ///< of each
  uint64_t sidecar_records = 0;
  engine::Limits limits;
  cluster::DecodeGroup::Options handoffs;
  transfer::EngineOptions transfers;
  std::chrono::microseconds step_max{4'000};
};

class WorkerProcess final : public Process {
 public:
  WorkerProcess(Place& place, const WorkerSpec& spec, uint64_t generation, uint64_t seed);
  ~WorkerProcess() override;

  rpc::Role role() const { return spec_.role; }
  void drain();
  bool is_idle() const;
  uint32_t handoffs_count() const;
  void set_step_loss(double chance) { step_loss_ = chance; }
  std::string held() const override;
  const std::vector<const transfer::Rail*>& rails() const { return rails_; }
  std::string counters() const;

 private:
  struct Group {
    std::unique_ptr<SimRunner> runner;
    std::unique_ptr<cluster::ReservationPort> reservations;
    std::unique_ptr<SimEngine> engine;
  };
  std::vector<cluster::DataRank> open_ranks(Group& group, size_t index);
  void announce();

  const WorkerSpec spec_;
  Draw draw_;
  double step_loss_ = 0;
  rpc::Member self_;
  std::vector<const transfer::Rail*> rails_;
  io::PostBox box_{gate_};
  cluster::EventPort events_{box_};
  cluster::ExportPort exports_{box_};
  std::vector<Group> groups_;
  std::unique_ptr<cluster::DecodeWorker> decode_;
  std::unique_ptr<cluster::PrefillWorker> prefill_;
};

}  // namespace tandem::sim
