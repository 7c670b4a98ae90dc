#include "apps/cluster_flags.h"

#include <algorithm>
#include <functional>

#include "comm/heap_options.h"
#include "io/socket.h"
#include "rpc/static_membership.h"

namespace tandem::apps {
namespace {

constexpr int kWorkersMax = 64;
constexpr std::string_view kEtcd = "etcd://";

/// How one process is laid out; with workers, each kind has flags of its own for that.
constexpr const char* kOneProcess[] = {"--tensor-parallel-size",
                                       "--data-parallel-size",
                                       "--enable-expert-parallel",
                                       "--expert-parallel-size",
                                       "--num-redundant-experts",
                                       "--enable-eplb",
                                       "--eplb-window-size",
                                       "--eplb-step-interval",
                                       "--nnodes",
                                       "--node-rank",
                                       "--dist-init-addr"};

/// A text that `parse` understands.
template <typename Parse>
CLI::Validator understood_by(Parse parse) {
  return CLI::Validator(
      [parse](const std::string& text) -> std::string {
        const auto parsed = parse(text);
        return parsed.ok() ? "" : parsed.error().what;
      },
      "");
}

Result<void> check_name(const std::string& text) {
  return rpc::check_member({.id = text, .address = "host:1"});
}

Result<void> check_listen_address(const std::string& text) {
  const io::Endpoint endpoint = TANDEM_TRY(io::parse_endpoint(text));
  if (endpoint.port == 0) {
    return make_error(Code::kInvalidArgument,
                      "port 0 would be any free one, which the others cannot know; name one");
  }
  return {};
}

Result<Discovery> parse_etcd(std::string_view text) {
  Discovery discovery;
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    discovery.etcd_cluster = text.substr(slash + 1);
    TANDEM_TRY(check_name(discovery.etcd_cluster));
    text = text.substr(0, slash);
  }
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    discovery.etcd_endpoints.push_back(
        TANDEM_TRY(io::parse_endpoint(text.substr(0, comma))).text());
    if (comma == text.size()) return discovery;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<Discovery> parse_discovery(std::string_view text) {
  if (text.starts_with(kEtcd)) return parse_etcd(text.substr(kEtcd.size()));
  Discovery discovery;
  discovery.members = TANDEM_TRY(rpc::parse_members(text));
  if (discovery.members.empty()) {
    return make_error(Code::kInvalidArgument,
                      "no worker is listed; write e.g. prefill:p0@10.0.0.1:7000,"
                      "decode:d0@10.0.0.2:7000, or etcd://10.0.0.3:2379");
  }
  return discovery;
}

void add_launch_flags(CLI::App& verb, LaunchOptions& options) {
  const CLI::Range workers(1, kWorkersMax);
  const CLI::Range ranks(1, comm::kRanksMax);
  CLI::Option* prefill = verb.add_option("--prefill-workers", options.prefill_workers,
                                         "processes to start that compute prompts for others")
                             ->check(workers);
  CLI::Option* decode = verb.add_option("--decode-workers", options.decode_workers,
                                        "processes to start that generate")
                            ->check(workers);
  prefill->needs(decode);
  decode->needs(prefill);
  verb.add_option("--prefill-tp", options.prefill_tensor_parallel,
                  "ranks of a prefill worker, which share its tokens")
      ->check(ranks)
      ->needs(prefill);
  verb.add_option("--decode-dp", options.decode_data_parallel,
                  "groups of a decode worker, each with requests of its own")
      ->check(ranks)
      ->needs(decode);
  verb.add_option("--decode-tp", options.decode_tensor_parallel,
                  "ranks of such a group, which share its tokens")
      ->check(ranks)
      ->needs(decode);
  for (const char* name : kOneProcess) prefill->excludes(verb.get_option(name));
}

void add_cluster_flags(CLI::App& verb, ClusterOptions& options) {
  verb.add_option("--discovery", options.discovery,
                  "who belongs to the cluster: ROLE:NAME@HOST:PORT,... or etcd://HOST:PORT,...")
      ->check(understood_by(parse_discovery));
  verb.add_option("--cluster-secret-file", options.credentials.secret,
                  "file with a secret that all processes of the cluster have");
  CLI::Option* authority = verb.add_option("--cluster-ca", options.credentials.authority,
                                           "PEM file: who signs the certificates of the cluster");
  CLI::Option* certificate = verb.add_option("--cluster-cert", options.credentials.certificate,
                                             "PEM file: certificate of this process");
  CLI::Option* key =
      verb.add_option("--cluster-key", options.credentials.key, "PEM file: its private key");
  authority->needs(certificate)->needs(key);
  certificate->needs(authority);
  key->needs(authority);
}

cluster::handoff::Policy HandoffPolicyOptions::value() const {
  if (policy == "retry") return cluster::handoff::Policy::kRetry;
  return policy == "fail" ? cluster::handoff::Policy::kFail : cluster::handoff::Policy::kRecompute;
}

void add_handoff_policy_flag(CLI::App& verb, HandoffPolicyOptions& options) {
  verb.add_option("--handoff-policy", options.policy,
                  "when a prefill worker fails: recompute its prompts here, retry on another, fail")
      ->check(CLI::IsMember({"recompute", "retry", "fail"}));
}

void add_worker_flags(CLI::App& verb, WorkerOptions& options) {
  verb.add_option("--role", options.role, "prefill: computes prompts for others; decode: generates")
      ->required()
      ->check(CLI::IsMember({"prefill", "decode"}));
  verb.add_option("--name", options.name, "of this worker in the cluster, unlike all others")
      ->required()
      ->check(understood_by(check_name));
  verb.add_option("--listen", options.listen_address,
                  "HOST:PORT for routers and other workers, who reach it there")
      ->required()
      ->check(understood_by(check_listen_address));
  add_cluster_flags(verb, options.cluster);
  verb.get_option("--discovery")->required();
  verb.add_option("--data-provider", options.data.provider,
                  "network of K and V: shm, tcp, verbs, efa or a name of libfabric's");
  verb.add_option("--data-interface", options.data.interface,
                  "interface, device or address of this host for K and V; else the first");
  add_handoff_flags(verb, options.handoffs);
  add_handoff_policy_flag(verb, options.handoff_policy);
  verb.add_option("--parent-pid", options.parent_process_id,
                  "process that started this one, which ends with it; 0: goes on alone")
      ->check(CLI::Range(0, 1 << 30));
}

}  // namespace tandem::apps
