#include "cluster/wire/status_codec.h"

namespace tandem::cluster::wire {
namespace {

using engine::EngineStatus;
using engine::RankStatus;

constexpr size_t kRankBytes = 44;

/// Calls `field` with every plain number of a status, in order.
template <typename Status, typename Field>
void for_each_number(Status& status, Field field) {
  field(status.requests_running);
  field(status.requests_waiting);
  field(status.requests_awaiting_kv);
  field(status.pages_used);
  field(status.pages_total);
  field(status.pages_leased);
  field(status.pages_quarantined);
  field(status.steps);
  field(status.preemptions);
  field(status.imported_tokens);
  field(status.prompt_tokens);
  field(status.generated_tokens);
  field(status.prefix_query_tokens);
  field(status.prefix_hit_tokens);
}

template <typename Rank, typename Field>
void for_each_rank_number(Rank& rank, Field field) {
  field(rank.pages_used);
  field(rank.pages_total);
  field(rank.steps);
  field(rank.idle_steps);
  field(rank.tokens);
  field(rank.expert_pairs);
}

}  // namespace

void put_status(Writer& writer, const EngineStatus& status, const WireLimits& limits) {
  const auto put = [&](auto number) { writer.put(number); };
  writer.put(status.ready);
  put_cut_text(writer, status.reason, limits);
  writer.put_list(status.lost_ranks,
                  [&](const std::string& name) { put_cut_text(writer, name, limits); });
  for_each_number(status, put);
  writer.put_list(status.ranks, [&](const RankStatus& rank) {
    writer.put(static_cast<uint32_t>(rank.rank));
    for_each_rank_number(rank, put);
  });
}

EngineStatus take_status(ByteReader& reader, const WireLimits& limits) {
  const auto take = [&]<typename Int>(Int& number) { number = reader.take<Int>(); };
  EngineStatus status;
  status.ready = reader.take_flag();
  status.reason = reader.take_text(limits.text_bytes_max);
  status.lost_ranks =
      reader.take_list(limits.list_max, 4, [&] { return reader.take_text(limits.text_bytes_max); });
  for_each_number(status, take);
  status.ranks = reader.take_list(limits.list_max, kRankBytes, [&] {
    RankStatus rank;
    const auto number = reader.take<uint32_t>();
    reader.require(number <= INT32_MAX);
    rank.rank = static_cast<int>(number);
    for_each_rank_number(rank, take);
    return rank;
  });
  return status;
}

}  // namespace tandem::cluster::wire
