#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cluster/placement.h"
#include "cluster/prefix_affinity.h"
#include "rpc/membership.h"

namespace tandem::cluster {

/// What a worker says of itself, several times a second.
struct WorkerReport {
  /// The number of the last request of this router that the figures include (Assignment); 0: none.
  uint64_t requests_included = 0;
  uint64_t queued_tokens = 0;  ///< of a prefill worker
  uint32_t page_tokens = 0;    ///< of a decode worker, as are its ranks; at most 1024
  struct Rank {
    uint64_t pages_total = 0;
    uint64_t pages_free = 0;
    uint32_t requests_waiting = 0;
  };
  std::vector<Rank> ranks;
};

/// Where one request goes. Each worker numbers what it is sent by its own count from 1.
struct Assignment {
  std::string decode_worker;
  uint32_t decode_rank = 0;
  uint64_t decode_number = 0;
  std::optional<std::string> prefill_worker;
  uint64_t prefill_number = 0;
};

/// What the router knows of the workers: who is listed, who is connected, what they report, and
/// what was sent to them since. Events come in, placements go out; no clock, no channel. One
/// thread.
///
/// A worker serves when it is listed, its connection is of the listed generation, it reports on
/// that connection, and it does not drain. Events of workers that are not known are ignored.
class WorkerBoard {
 public:
  struct Options {
    PrefixKeys prefix_keys;
    size_t affinity_entries_max = 1'000'000;
    /// A worker whose reports lag so many requests behind gets no more.
    size_t unreported_max = 1'024;
    PlacementWeights weights;
  };
  explicit WorkerBoard(const Options& options)
      : options_(options), affinity_(options.affinity_entries_max) {}

  /// Also when an entry changes. Another generation or registration is another life.
  void listed(const rpc::Member& member);
  void left(const std::string& worker);
  void connected(const std::string& worker, uint64_t generation);
  void disconnected(const std::string& worker);
  void reported(const std::string& worker, WorkerReport report);
  /// The two workers cannot work together, by their handshake; until one of them is another life.
  void mismatched(const std::string& decode, const std::string& prefill, std::string reason);

  /// Chooses, and counts the request as sent.
  Result<Assignment> assign(std::span<const TokenId> prompt, std::string_view salt,
                            uint64_t tokens_max);

  /// What is missing for full service, one line per worker; empty when nothing is.
  std::vector<std::string> missing() const;

 private:
  /// A request that the last report does not include.
  struct Sent {
    uint64_t number;
    uint32_t rank;
    uint64_t tokens;  ///< to hold, or to compute
  };
  struct Worker {
    rpc::Member member;
    std::optional<uint64_t> connected;  ///< generation
    std::optional<WorkerReport> report;
    uint64_t sent_count = 0;
    std::deque<Sent> sent;
    std::vector<PlaceId> places;  ///< one per rank; of a prefill worker one
  };
  /// What placement sees, and whose line it is.
  struct View {
    std::vector<DecodeRank> decode_ranks;
    std::vector<std::pair<std::string, uint32_t>> decode_places;  ///< worker and rank
    std::vector<PrefillWorker> prefill_workers;
    std::vector<std::string> prefill_names;
    std::vector<Mismatch> mismatches;
  };

  void start_life(Worker& worker);
  void set_places(Worker& worker, size_t count);
  View view(std::span<const uint64_t> keys) const;
  void add_ranks(View& view, const Worker& worker, std::span<const uint64_t> keys) const;
  Health health(const Worker& worker) const;
  uint64_t send(Worker& worker, uint32_t rank, uint64_t tokens, std::span<const uint64_t> keys);

  const Options options_;
  PrefixAffinity affinity_;
  std::map<std::string, Worker> workers_;
  std::map<std::pair<std::string, std::string>, std::string> mismatches_;
  uint32_t places_made_ = 0;
  uint64_t turns_ = 0;
};

}  // namespace tandem::cluster
