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
  uint64_t queued_tokens = 0;  ///< of a prefill worker, without what this router sent it
  uint32_t page_tokens = 0;    ///< of a decode worker
  uint32_t model_length_max = 0;
  bool draining = false;
  struct Rank {
    bool ready = true;
    uint64_t pages_total = 0;
    uint64_t pages_free = 0;
    uint32_t requests_waiting = 0;
  };
  /// At most 1024. Of a prefill worker only `ready` counts: one of them is enough, as is none.
  std::vector<Rank> ranks;
};

/// Where one request goes. Each worker numbers what it is sent by its own count from 1.
struct Assignment {
  uint64_t id = 0;  ///< never used again
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
/// that connection that it is ready, and it does not drain. Events of workers that are not known
/// are ignored.
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
  /// Also when it cannot be connected.
  void disconnected(const std::string& worker, std::string reason);
  /// It has not been heard of for too long: it gets nothing until it reports again.
  void silent(const std::string& worker);
  void reported(const std::string& worker, WorkerReport report);
  /// The two workers cannot work together, by their handshake; until it has no reason any more, or
  /// one of them is another life.
  void mismatched(const std::string& decode, const std::string& prefill, std::string reason);

  /// Chooses, and counts the request as sent. `failed` are earlier attempts at the same request:
  /// others are tried before these again.
  Result<Assignment> assign(std::span<const TokenId> prompt, std::string_view salt,
                            uint64_t tokens_max, std::span<const Assignment> failed = {});
  /// The prompt is computed, or will not be: it is no longer queued at the prefill worker. More
  /// than once is as good as once.
  void prefilled(const Assignment& assignment);
  /// The decode worker never gets it, so that no report will include it.
  void not_sent(const Assignment& assignment);

  /// Whether some request could be served now.
  bool can_serve() const;

  /// What is missing for full service, one line per worker; empty when nothing is.
  std::vector<std::string> missing() const;

 private:
  /// A request that the last report does not include.
  struct Sent {
    uint64_t assignment;
    uint64_t number;
    uint32_t rank;
    uint64_t tokens;  ///< to hold, or to compute
  };
  struct Worker {
    rpc::Member member;
    std::optional<uint64_t> connected;  ///< generation
    std::string why_disconnected;
    std::optional<WorkerReport> report;
    uint64_t sent_count = 0;
    std::deque<Sent> sent;
    std::vector<PlaceId> places;  ///< one per rank; of a prefill worker one
  };
  /// What placement sees, and whose line it is.
  struct View {
    std::vector<DecodeRank> decode_ranks;
    std::vector<std::pair<std::string, uint32_t>> decode_places;  ///< worker and rank
    std::vector<PrefillCandidate> prefill_workers;
    std::vector<std::string> prefill_names;
    std::vector<Mismatch> mismatches;
  };

  void start_life(Worker& worker);
  void set_places(Worker& worker, size_t count);
  View view(std::span<const uint64_t> keys) const;
  void add_ranks(View& view, const Worker& worker, std::span<const uint64_t> keys) const;
  Health health(const Worker& worker) const;
  uint64_t send(Worker& worker, uint32_t rank, uint64_t tokens, std::span<const uint64_t> keys);
  void forget_sent(const std::string& worker, uint64_t assignment);

  const Options options_;
  PrefixAffinity affinity_;
  std::map<std::string, Worker> workers_;
  std::map<std::pair<std::string, std::string>, std::string> mismatches_;
  uint32_t places_made_ = 0;
  uint64_t turns_ = 0;
};

}  // namespace tandem::cluster
