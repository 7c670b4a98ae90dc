// Goal: flags of a cluster that contradict each other are refused by name, a worker reads what
// `serve` tells it, and lists of members mean what they say.
// Method: command lines of verbs that have the flags of serve and of a worker; those that
// worker_processes() makes are parsed again.
#include "apps/cluster_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "apps/launch.h"
#include "apps/run_ranks.h"
#include "io/file.h"

namespace tandem::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A verb with some of these flags and what it reads.
struct Verb {
  CLI::App app;
  LoadOptions load;
  EngineOptions engine;
  LayoutOptions layout;
  LaunchOptions launch;
  HandoffPolicyOptions handoff_policy;
  WorkerOptions worker;

  void add_common() {
    add_load_flags(app, load);
    add_engine_flags(app, engine);
    add_queue_flags(app, engine);
    add_layout_flags(app, layout);
  }
  static std::unique_ptr<Verb> serve() {
    auto verb = std::make_unique<Verb>();
    verb->add_common();
    add_launch_flags(verb->app, verb->launch);
    add_handoff_policy_flag(verb->app, verb->handoff_policy);
    return verb;
  }
  static std::unique_ptr<Verb> of_worker() {
    auto verb = std::make_unique<Verb>();
    verb->add_common();
    add_worker_flags(verb->app, verb->worker);
    return verb;
  }
  /// Empty if the command line is understood.
  std::string refusal(std::vector<std::string> arguments) {
    std::ranges::reverse(arguments);
    try {
      app.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }
};

std::string serve_refusal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "model");
  return Verb::serve()->refusal(std::move(arguments));
}

TEST(LaunchFlags, BothKindsOfWorkersAreNeeded) {
  EXPECT_EQ(serve_refusal({}), "");
  EXPECT_EQ(serve_refusal({"--prefill-workers", "1", "--decode-workers", "2"}), "");
  EXPECT_THAT(serve_refusal({"--prefill-workers", "1"}),
              HasSubstr("--prefill-workers requires --decode-workers"));
  EXPECT_THAT(serve_refusal({"--decode-workers", "1"}),
              HasSubstr("--decode-workers requires --prefill-workers"));
  EXPECT_THAT(serve_refusal({"--prefill-tp", "2"}), HasSubstr("--prefill-tp requires"));
  EXPECT_THAT(serve_refusal({"--decode-dp", "2"}), HasSubstr("--decode-dp requires"));
  EXPECT_THAT(serve_refusal({"--decode-tp", "2"}), HasSubstr("--decode-tp requires"));
  EXPECT_THAT(serve_refusal({"--prefill-workers", "0", "--decode-workers", "1"}),
              HasSubstr("--prefill-workers"));
}

TEST(LaunchFlags, TheLayoutOfOneProcessIsRefusedByName) {
  const std::vector<std::string> workers = {"--prefill-workers", "1", "--decode-workers", "1"};
  const std::vector<std::vector<std::string>> wrong = {{"--tp", "2"},
                                                       {"--data-parallel-size", "2"},
                                                       {"--enable-eplb"},
                                                       {"--num-redundant-experts", "2"},
                                                       {"--nnodes", "1"}};
  for (std::vector<std::string> arguments : wrong) {
    const std::string name = arguments[0] == "--tp" ? "--tensor-parallel-size" : arguments[0];
    arguments.insert(arguments.end(), workers.begin(), workers.end());
    EXPECT_THAT(serve_refusal(arguments), HasSubstr(name + " excludes --prefill-workers"));
  }
}

std::vector<std::string> worker_line() {
  return {"model", "--role=decode", "--name=d0", "--listen=127.0.0.1:7000",
          "--discovery=decode:d0@127.0.0.1:7000"};
}

TEST(WorkerFlags, AreReadAndChecked) {
  EXPECT_EQ(Verb::of_worker()->refusal(worker_line()), "");
  const auto refusal_with = [](const std::string& more) {
    std::vector<std::string> line = worker_line();
    line.push_back(more);
    return Verb::of_worker()->refusal(line);
  };
  std::vector<std::string> line = worker_line();
  line[1] = "--role=both";
  EXPECT_THAT(Verb::of_worker()->refusal(line), HasSubstr("--role"));
  line = worker_line();
  line[2] = "--name=a b";
  EXPECT_THAT(Verb::of_worker()->refusal(line), HasSubstr("an id has 1 to 128 letters"));
  line = worker_line();
  line[3] = "--listen=127.0.0.1:0";
  EXPECT_THAT(Verb::of_worker()->refusal(line), HasSubstr("port 0"));
  line = worker_line();
  line[4] = "--discovery=d0";
  EXPECT_THAT(Verb::of_worker()->refusal(line), HasSubstr("cannot read the worker"));
  EXPECT_THAT(refusal_with("--cluster-key=key.pem"), HasSubstr("--cluster-key requires"));
  EXPECT_THAT(refusal_with("--cluster-ca=ca.pem"), HasSubstr("--cluster-ca requires"));
}

TEST(Discovery, IsAListOrAnEtcd) {
  const Discovery list =
      parse_discovery("prefill:p0@10.0.0.1:7000,decode:d0@10.0.0.2:7001").value();
  EXPECT_FALSE(list.uses_etcd());
  ASSERT_EQ(list.members.size(), 2u);
  EXPECT_EQ(list.members[1].id, "d0");
  EXPECT_EQ(list.members[1].address, "10.0.0.2:7001");
  const Discovery etcd = parse_discovery("etcd://10.0.0.3:2379,[::1]:2379/blue").value();
  EXPECT_TRUE(etcd.uses_etcd());
  EXPECT_THAT(etcd.etcd_endpoints, ElementsAre("10.0.0.3:2379", "[::1]:2379"));
  EXPECT_EQ(etcd.etcd_cluster, "blue");
  EXPECT_EQ(parse_discovery("etcd://host:1").value().etcd_cluster, "default");
  for (const char* wrong : {"", "etcd://", "etcd://host", "etcd://host:1/", "etcd://host:1,",
                            "router:r0@host:1", "prefill:p0"}) {
    EXPECT_FALSE(parse_discovery(wrong).ok()) << wrong;
  }
}

model::ModelConfig small_config() {
  return {.hidden_size = 64,
          .layers_count = 1,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 8,
          .moe_intermediate_size = 128,
          .experts_count = 4,
          .experts_per_token = 2,
          .layer_is_moe = {true},
          .vocab_size = 256};
}

TEST(Launch, WorkersUnderstandWhatTheyAreTold) {
  const auto serve = Verb::serve();
  ASSERT_EQ(serve->refusal({"some model",
                            "--prefill-workers",
                            "2",
                            "--prefill-tp",
                            "4",
                            "--decode-workers",
                            "1",
                            "--decode-dp",
                            "3",
                            "--decode-tp",
                            "2",
                            "--max-num-seqs",
                            "7",
                            "--no-enable-prefix-caching",
                            "--dtype",
                            "f32",
                            "--max-num-queued-tokens",
                            "99",
                            "--handoff-policy",
                            "retry"}),
            "");
  const auto workers = plan_workers(serve->launch).value();
  ASSERT_EQ(workers.size(), 3u);
  const auto children =
      worker_processes(serve->app, workers,
                       {.layout = serve->launch, .secret_path = "/a/secret", .threads_count = 16});
  ASSERT_EQ(children.size(), 3u);
  for (size_t i = 0; i < children.size(); ++i) {
    std::vector<std::string> arguments = children[i].process.arguments;
    ASSERT_EQ(arguments.front(), "worker");
    arguments.erase(arguments.begin());
    const auto worker = Verb::of_worker();
    ASSERT_EQ(worker->refusal(arguments), "");
    EXPECT_EQ(worker->worker.name, children[i].name);
    EXPECT_EQ(worker->worker.member_role(), i == 0 ? rpc::Role::kDecode : rpc::Role::kPrefill);
    EXPECT_EQ(worker->worker.listen_address, workers[i].address);
    EXPECT_EQ(worker->worker.cluster.credentials.secret, "/a/secret");
    EXPECT_EQ(worker->worker.parent_process_id, getpid());
    const auto listed = parse_discovery(worker->worker.cluster.discovery).value().members;
    ASSERT_EQ(listed.size(), 3u);
    EXPECT_EQ(listed[i].id, children[i].name);
    EXPECT_EQ(listed[i].address, workers[i].address);
    EXPECT_EQ(worker->load.model, "some model");
    EXPECT_EQ(worker->load.device.dtype, "f32");
    EXPECT_EQ(worker->load.device.threads_count, 5);
    EXPECT_EQ(worker->engine.sequences_max, 7u);
    EXPECT_EQ(worker->engine.queue_tokens_max, 99u);
    EXPECT_FALSE(worker->engine.prefix_caching);
    EXPECT_EQ(worker->worker.handoff_policy.policy, "retry");
    EXPECT_EQ(worker->layout.layout.tensor_parallel, i == 0 ? 2 : 4);
    EXPECT_EQ(worker->layout.layout.data_parallel, i == 0 ? 3 : 1);
  }
}

TEST(Launch, LayoutsThatDoNotFitTheModelAreRefusedBeforeTheStart) {
  const model::ModelConfig config = small_config();
  const auto refusal_of = [&](const LaunchOptions& options) {
    const auto checked = check_workers(options, config);
    return checked.ok() ? "" : checked.error().what;
  };
  EXPECT_EQ(refusal_of({.prefill_tensor_parallel = 4, .decode_data_parallel = 4}), "");
  EXPECT_THAT(refusal_of({.prefill_tensor_parallel = 3}), StartsWith("--prefill-tp 3: "));
  EXPECT_THAT(refusal_of({.decode_tensor_parallel = 3}),
              StartsWith("--decode-tp 3 --decode-dp 1: "));
  EXPECT_THAT(refusal_of({.decode_data_parallel = 5}), HasSubstr("--decode-dp 5: ")) << "experts";
}

TEST(Launch, AllWorkersTogetherMustFit) {
  const model::ModelConfig config = small_config();
  const WorkerModel model{
      .config = config,
      .limits = {.model_length_max = 256, .pages_total = 64, .vocabulary_size = 256}};
  const auto fits = [&](const LaunchOptions& options, size_t bytes) {
    return require_memory_of_workers(options, model, {.machine_bytes = bytes}).ok();
  };
  // Memory for one of each, to the byte.
  const LaunchOptions one{.prefill_workers = 1, .decode_workers = 1, .decode_data_parallel = 2};
  size_t enough = 1;
  while (!fits(one, enough)) enough *= 2;
  for (size_t step = enough / 4; step > 0; step /= 2) {
    if (fits(one, enough - step)) enough -= step;
  }
  EXPECT_FALSE(fits(one, enough - 1));
  EXPECT_TRUE(
      fits({.prefill_workers = 2, .decode_workers = 2, .decode_data_parallel = 2}, 2 * enough));
  EXPECT_FALSE(
      fits({.prefill_workers = 2, .decode_workers = 2, .decode_data_parallel = 2}, 2 * enough - 1));
  EXPECT_FALSE(
      fits({.prefill_workers = 1, .decode_workers = 1, .decode_data_parallel = 4}, enough));
  const auto refused = require_memory_of_workers(one, model, {.machine_bytes = 1 << 20});
  EXPECT_THAT(refused.error().what, HasSubstr("1.0 MiB are available"));
}

TEST(Launch, PortsDiffer) {
  const auto workers = plan_workers({.prefill_workers = 20, .decode_workers = 20}).value();
  std::vector<std::string> addresses;
  for (const rpc::Member& worker : workers) addresses.push_back(worker.address);
  std::ranges::sort(addresses);
  EXPECT_EQ(std::ranges::adjacent_find(addresses), addresses.end());
}

TEST(ClusterSecret, IsReadByChildrenAndGoneWithItsMaker) {
  std::string path;
  {
    const auto secret = ClusterSecret::create().value();
    const auto other = ClusterSecret::create().value();
    path = secret.path();
    const std::string text = io::read_file(path, 1000).value();
    EXPECT_EQ(text.size(), 64u);
    EXPECT_NE(text, io::read_file(other.path(), 1000).value());
    auto child = ChildProcess::start({"/bin/cat", {path}}).value();
    std::string heard;
    while (!child.ending()) heard += child.read_output();
    heard += child.read_output();
    EXPECT_EQ(heard, text);
  }
  EXPECT_FALSE(io::read_file(path, 1000).ok());
}

}  // namespace
}  // namespace tandem::apps
