#include "cluster/worker_board.h"

#include <algorithm>
#include <tuple>

namespace tandem::cluster {
namespace {

constexpr size_t kRanksMax = 1024;

}  // namespace

void WorkerBoard::listed(const rpc::Member& member) {
  // A static list does not know how many ranks there are; their reports do.
  const auto [found, is_new] = workers_.try_emplace(member.id);
  Worker& worker = found->second;
  const bool same_life = !is_new && worker.member.generation == member.generation &&
                         worker.member.registration == member.registration;
  worker.member = member;
  if (!same_life) start_life(worker);
}

void WorkerBoard::start_life(Worker& worker) {
  set_places(worker, 0);
  worker.sent.clear();
  worker.report.reset();
  std::erase_if(mismatches_, [&](const auto& mismatch) {
    return mismatch.first.first == worker.member.id || mismatch.first.second == worker.member.id;
  });
}

void WorkerBoard::set_places(Worker& worker, size_t count) {
  for (const PlaceId place : worker.places) affinity_.forget(place);
  worker.places.clear();
  while (worker.places.size() < count) worker.places.push_back(PlaceId{++places_made_});
}

void WorkerBoard::left(const std::string& name) {
  const auto found = workers_.find(name);
  if (found == workers_.end()) return;
  start_life(found->second);
  workers_.erase(found);
}

void WorkerBoard::connected(const std::string& name, uint64_t generation) {
  const auto found = workers_.find(name);
  if (found == workers_.end()) return;
  // Its count of requests starts over with the connection.
  Worker& worker = found->second;
  worker.connected = generation;
  worker.why_disconnected.clear();
  worker.report.reset();
  worker.sent.clear();
  worker.sent_count = 0;
}

void WorkerBoard::silent(const std::string& name) {
  const auto found = workers_.find(name);
  if (found != workers_.end()) found->second.report.reset();
}

void WorkerBoard::disconnected(const std::string& name, std::string reason) {
  const auto found = workers_.find(name);
  if (found == workers_.end()) return;
  found->second.why_disconnected = std::move(reason);
  found->second.connected.reset();
  found->second.report.reset();
  found->second.sent.clear();
}

void WorkerBoard::reported(const std::string& name, WorkerReport report) {
  const auto found = workers_.find(name);
  if (found == workers_.end() || !found->second.connected) return;
  Worker& worker = found->second;
  const bool decodes = worker.member.role == rpc::Role::kDecode;
  const size_t places_count = decodes ? report.ranks.size() : 1;
  if (places_count > kRanksMax) return;
  if (worker.places.size() != places_count) set_places(worker, places_count);
  while (!worker.sent.empty() && worker.sent.front().number <= report.requests_included) {
    worker.sent.pop_front();
  }
  worker.report = std::move(report);
}

void WorkerBoard::mismatched(const std::string& decode, const std::string& prefill,
                             std::string reason) {
  if (!workers_.contains(decode) || !workers_.contains(prefill)) return;
  if (reason.empty()) {
    mismatches_.erase({decode, prefill});
  } else {
    mismatches_[{decode, prefill}] = std::move(reason);
  }
}

Health WorkerBoard::health(const Worker& worker) const {
  // 0: a static list, which knows no generations.
  const bool is_listed_life =
      worker.member.generation == 0 || worker.connected == worker.member.generation;
  if (!worker.connected || !is_listed_life) return Health::kDead;
  if (!worker.report || worker.sent.size() >= options_.unreported_max) return Health::kSilent;
  if (worker.member.draining || worker.report->draining) return Health::kDraining;
  const auto& ranks = worker.report->ranks;
  const bool is_ready =
      ranks.empty() || std::ranges::any_of(ranks, [](const auto& rank) { return rank.ready; });
  return is_ready ? Health::kServing : Health::kNotReady;
}

void WorkerBoard::add_ranks(View& view, const Worker& worker,
                            std::span<const uint64_t> keys) const {
  // One that has not reported has a line as well, so that a refusal names it.
  const size_t count = worker.report ? worker.report->ranks.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    DecodeRank rank;
    rank.name = worker.member.id;
    if (count > 1) rank.name += " rank " + std::to_string(i);
    rank.health = health(worker);
    if (worker.report) {
      rank.page_tokens = worker.report->page_tokens;
      rank.model_length_max = worker.report->model_length_max;
      const WorkerReport::Rank& load = worker.report->ranks[i];
      if (rank.health == Health::kServing && !load.ready) rank.health = Health::kNotReady;
      rank.pages_total = load.pages_total;
      rank.pages_free = load.pages_free;
      rank.requests_waiting = load.requests_waiting;
      rank.cached_tokens =
          affinity_.matched(worker.places[i], keys) * options_.prefix_keys.block_tokens;
    }
    for (const Sent& sent : worker.sent) {
      if (sent.rank != i || rank.page_tokens == 0) continue;
      const uint64_t pages = (sent.tokens + rank.page_tokens) / rank.page_tokens;
      rank.pages_free -= std::min(rank.pages_free, pages);
    }
    view.decode_ranks.push_back(std::move(rank));
    view.decode_places.emplace_back(worker.member.id, static_cast<uint32_t>(i));
  }
}

WorkerBoard::View WorkerBoard::view(std::span<const uint64_t> keys) const {
  View view;
  for (const auto& [name, worker] : workers_) {
    if (worker.member.role == rpc::Role::kDecode) {
      add_ranks(view, worker, keys);
      continue;
    }
    PrefillCandidate prefill;
    prefill.name = name;
    prefill.health = health(worker);
    if (worker.report) {
      prefill.queued_tokens = worker.report->queued_tokens;
      prefill.cached_tokens =
          affinity_.matched(worker.places[0], keys) * options_.prefix_keys.block_tokens;
    }
    for (const Sent& sent : worker.sent) prefill.queued_tokens += sent.tokens;
    view.prefill_workers.push_back(std::move(prefill));
    view.prefill_names.push_back(name);
  }
  for (size_t d = 0; d < view.decode_places.size(); ++d) {
    for (size_t p = 0; p < view.prefill_names.size(); ++p) {
      const auto found = mismatches_.find({view.decode_places[d].first, view.prefill_names[p]});
      if (found != mismatches_.end()) view.mismatches.push_back({d, p, found->second});
    }
  }
  return view;
}

void WorkerBoard::forget_sent(const std::string& name, uint64_t assignment) {
  const auto found = workers_.find(name);
  if (found == workers_.end()) return;
  std::erase_if(found->second.sent,
                [&](const Sent& sent) { return sent.assignment == assignment; });
}

void WorkerBoard::prefilled(const Assignment& assignment) {
  if (assignment.prefill_worker) forget_sent(*assignment.prefill_worker, assignment.id);
}

void WorkerBoard::not_sent(const Assignment& assignment) {
  prefilled(assignment);
  forget_sent(assignment.decode_worker, assignment.id);
}

bool WorkerBoard::can_serve() const {
  // As a prompt of two tokens would be placed.
  const View now = view({});
  return place({.prompt_tokens = 2,
                .tokens_max = 1,
                .decode_ranks = now.decode_ranks,
                .prefill_workers = now.prefill_workers,
                .mismatches = now.mismatches})
      .ok();
}

uint64_t WorkerBoard::send(Worker& worker, uint32_t rank, uint64_t tokens,
                           std::span<const uint64_t> keys) {
  affinity_.record(worker.places[rank], keys);
  worker.sent.push_back({turns_, ++worker.sent_count, rank, tokens});
  return worker.sent_count;
}

Result<Assignment> WorkerBoard::assign(std::span<const TokenId> prompt, std::string_view salt,
                                       uint64_t tokens_max, std::span<const Assignment> failed) {
  const std::vector<uint64_t> keys = options_.prefix_keys.of(prompt, salt);
  View now = view(keys);
  for (const Assignment& attempt : failed) {
    for (size_t i = 0; i < now.decode_ranks.size(); ++i) {
      const auto& [worker, rank] = now.decode_places[i];
      now.decode_ranks[i].failures +=
          worker == attempt.decode_worker && rank == attempt.decode_rank;
    }
    for (size_t i = 0; i < now.prefill_workers.size(); ++i) {
      now.prefill_workers[i].failures += now.prefill_names[i] == attempt.prefill_worker;
    }
  }
  const Placement placement = TANDEM_TRY(place({.prompt_tokens = prompt.size(),
                                                .tokens_max = tokens_max,
                                                .decode_ranks = now.decode_ranks,
                                                .prefill_workers = now.prefill_workers,
                                                .mismatches = now.mismatches,
                                                .turn = ++turns_},
                                               options_.weights));
  Assignment assignment;
  assignment.id = turns_;
  std::tie(assignment.decode_worker, assignment.decode_rank) = now.decode_places[placement.decode];
  assignment.decode_number =
      send(workers_.at(assignment.decode_worker), assignment.decode_rank, prompt.size(), keys);
  if (placement.prefill) {
    assignment.prefill_worker = now.prefill_names[*placement.prefill];
    const uint64_t cached = now.prefill_workers[*placement.prefill].cached_tokens;
    assignment.prefill_number =
        send(workers_.at(*assignment.prefill_worker), 0, prompt.size() - cached, keys);
  }
  return assignment;
}

std::vector<std::string> WorkerBoard::missing() const {
  std::vector<std::string> lines;
  bool serves[3] = {};  // by role
  for (const auto& [name, worker] : workers_) {
    const std::string who = std::string(rpc::role_name(worker.member.role)) + " worker " + name;
    switch (health(worker)) {
      case Health::kServing:
        serves[static_cast<size_t>(worker.member.role)] = true;
        break;
      case Health::kDraining:
        lines.push_back(who + " is draining");
        break;
      case Health::kNotReady:
        lines.push_back(who + " is not ready");
        break;
      case Health::kSilent:
        lines.push_back(who + " does not report");
        break;
      case Health::kDead:
        lines.push_back(who + " is not connected" +
                        (worker.why_disconnected.empty() ? "" : ": " + worker.why_disconnected));
        break;
    }
  }
  for (const rpc::Role role : {rpc::Role::kPrefill, rpc::Role::kDecode}) {
    if (!serves[static_cast<size_t>(role)]) {
      lines.push_back(std::string("no ") + rpc::role_name(role) + " worker serves");
    }
  }
  for (const auto& [pair, reason] : mismatches_) {
    lines.push_back(pair.first + " does not match " + pair.second + " (" + reason + ")");
  }
  return lines;
}

}  // namespace tandem::cluster
