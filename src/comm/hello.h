#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/connection.h"
#include "comm/group_health.h"

namespace tandem::comm {

/// What a rank says first: who it is, and what must be equal on all ranks.
struct Hello {
  int rank = 0;
  RankPlace place;
  /// Names and values: protocol version, number of ranks, heap bytes, model, dtype, sharding, ...
  std::vector<std::pair<std::string, std::string>> fields;

  /// "rank 3 of host b (process 4711)"
  std::string name() const;
};

Message encode(const Hello& hello);
/// None when the message is no hello of this program, whatever its version.
std::optional<Hello> hello_of(const Message& message);

/// Every field in which the two differ, with both values, cut to what fits into a log line; empty
/// when they agree.
std::string differences(const Hello& mine, const Hello& theirs);

RankPlace place_here();
RankPlace place_of(const std::string& host, const std::string& process_id);

}  // namespace tandem::comm
