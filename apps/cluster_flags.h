#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/run_engine.h"
#include "base/result.h"
#include "cluster/handoff/decoder_ports.h"
#include "model/sharding.h"
#include "rpc/grpc_channel.h"
#include "rpc/membership.h"
#include "transfer/libfabric/options.h"

namespace tandem::apps {

/// How `serve` spreads a model over worker processes that it starts on this host; none: it serves
/// alone.
struct LaunchOptions {
  int prefill_workers = 0;
  int prefill_tensor_parallel = 1;
  int decode_workers = 0;
  int decode_data_parallel = 1;
  int decode_tensor_parallel = 1;

  bool starts_workers() const { return prefill_workers > 0; }
  model::Layout prefill_layout() const { return {.tensor_parallel = prefill_tensor_parallel}; }
  model::Layout decode_layout() const {
    return {.tensor_parallel = decode_tensor_parallel, .data_parallel = decode_data_parallel};
  }
};

/// The flags of LaunchOptions. They need each other, and exclude those flags of `verb`, which has
/// them all by now, that say how one process is laid out.
void add_launch_flags(CLI::App& verb, LaunchOptions& options);

/// Where the members of a cluster are listed.
struct Discovery {
  std::vector<rpc::Member> members;         ///< a list that never changes
  std::vector<std::string> etcd_endpoints;  ///< or an etcd
  std::string etcd_cluster = "default";
  bool uses_etcd() const { return !etcd_endpoints.empty(); }
};
/// "prefill:p0@10.0.0.1:7000,decode:d0@10.0.0.2:7000", or "etcd://HOST:PORT,HOST:PORT/CLUSTER",
/// where
/// "/CLUSTER" may be left out. kInvalidArgument says what is wrong.
Result<Discovery> parse_discovery(std::string_view text);

/// How a process finds the cluster and proves that it belongs to it.
struct ClusterOptions {
  std::string discovery;  ///< parse_discovery
  rpc::CredentialFiles credentials;
};

/// The flags of ClusterOptions.
void add_cluster_flags(CLI::App& verb, ClusterOptions& options);

/// What becomes of a request whose prompt a prefill worker did not bring.
struct HandoffPolicyOptions {
  std::string policy = "recompute";  ///< or "retry", "fail"
  cluster::handoff::Policy value() const;
};
void add_handoff_policy_flag(CLI::App& verb, HandoffPolicyOptions& options);

/// One worker process.
struct WorkerOptions {
  std::string role;  ///< "prefill" or "decode"
  std::string name;
  std::string listen_address;  ///< of its channel, where the others reach it
  ClusterOptions cluster;
  transfer::LibfabricOptions data;
  HandoffOptions handoffs;
  HandoffPolicyOptions handoff_policy;
  int parent_process_id = 0;  ///< dies with it; 0: with nobody

  rpc::Role member_role() const {
    return role == "prefill" ? rpc::Role::kPrefill : rpc::Role::kDecode;
  }
};

/// The flags of WorkerOptions.
void add_worker_flags(CLI::App& verb, WorkerOptions& options);

}  // namespace tandem::apps
