#include "transfer/engine/region_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::transfer {

Error RegionTable::full_error(const char* what) const {
  return make_error(Code::kResourceExhausted,
                    fmt::format("{} has {} {}, which is the most it may have; remove some",
                                shared_.options.name, shared_.options.regions_max, what));
}

Result<std::vector<Registration>> RegionTable::register_on_all(const MemoryBlock& block,
                                                               Access access) {
  std::vector<Registration> registrations;
  for (const auto& rail : shared_.rails) {
    auto registration = rail->register_memory(block, access);
    if (!registration.ok()) {
      for (uint32_t i = 0; i < registrations.size(); ++i) {
        shared_.rails[i]->close_region(registrations[i].id);
      }
      return with_context(registration.error(), fmt::format("registering {} bytes on rail {}",
                                                            block.bytes, rail->name()));
    }
    registrations.push_back(*registration);
  }
  return registrations;
}

Result<MemoryId> RegionTable::add_memory(const MemoryBlock& block) {
  if (memories_.size() >= shared_.options.regions_max) return full_error("memories");
  const auto registrations = TANDEM_TRY(register_on_all(block, Access::kSource));
  const MemoryId id{++ids_made_};
  Memory& memory = memories_[id];
  memory.block = block;
  for (const Registration& registration : registrations) {
    memory.sources.push_back(registration.id);
  }
  return id;
}

Memory* RegionTable::find_memory(MemoryId id) {
  const auto found = memories_.find(id);
  return found == memories_.end() ? nullptr : &found->second;
}

Result<void> RegionTable::remove_memory(MemoryId id) {
  const Memory* memory = find_memory(id);
  if (memory == nullptr) return make_error(Code::kInvalidArgument, "there is no such memory");
  if (memory->uses > 0 || memory->grants > 0) {
    return make_error(
        Code::kFailedPrecondition,
        fmt::format("memory of {} bytes is still used by {} writes and {} grants; end them first",
                    memory->block.bytes, memory->uses, memory->grants));
  }
  for (uint32_t rail = 0; rail < shared_.rails.size(); ++rail) {
    shared_.rails[rail]->close_region(memory->sources[rail]);
  }
  memories_.erase(id);
  return {};
}

Result<Grant> RegionTable::grant(MemoryId memory_id, const Peer* writer) {
  Memory* memory = find_memory(memory_id);
  if (memory == nullptr) return make_error(Code::kInvalidArgument, "there is no such memory");
  if (grants_.size() >= shared_.options.regions_max) return full_error("grants");
  const auto registrations = TANDEM_TRY(register_on_all(memory->block, Access::kTarget));
  Grant grant{.id = {++ids_made_}, .descriptor = {.bytes = memory->block.bytes}};
  GrantRecord& record = grants_[grant.id];
  record.memory = memory_id;
  for (uint32_t rail = 0; rail < registrations.size(); ++rail) {
    const RemoteKey& remote = registrations[rail].remote;
    record.rails.push_back({.registration = registrations[rail]});
    // A rail knows only those whose path is not lost.
    if (writer != nullptr && rail < writer->paths.size() &&
        writer->paths[rail].state == Path::State::kOpen) {
      shared_.rails[rail]->set_writer(registrations[rail].id, writer->paths[rail].id);
    }
    keys_[rail][remote.key] = grant.id;
    grant.descriptor.rails.push_back(remote);
  }
  ++memory->grants;
  return grant;
}

void RegionTable::revoke(GrantId id, std::function<void(bool is_fenced)> on_closed) {
  const auto found = grants_.find(id);
  TANDEM_CHECK(found != grants_.end(), "a grant is revoked that does not exist");
  GrantRecord& record = found->second;
  TANDEM_CHECK(!record.is_revoked, "a grant is revoked twice");
  record.is_revoked = true;
  record.on_closed = std::move(on_closed);
  for (uint32_t rail = 0; rail < record.rails.size(); ++rail) close(rail, record.rails[rail]);
  forget_if_closed(id);
}

void RegionTable::close(uint32_t rail, RailGrant& grant) {
  if (grant.state != RailGrant::State::kOpen) return;
  grant.state = RailGrant::State::kClosing;
  closing_[rail][grant.registration.id.value] = keys_[rail].at(grant.registration.remote.key);
  shared_.rails[rail]->close_region(grant.registration.id);
}

void RegionTable::forget_if_closed(GrantId id) {
  GrantRecord& record = grants_.at(id);
  const bool is_closed = std::ranges::all_of(
      record.rails, [](const RailGrant& rail) { return rail.state == RailGrant::State::kClosed; });
  if (!record.is_revoked || !is_closed) return;
  for (uint32_t rail = 0; rail < record.rails.size(); ++rail) {
    keys_[rail].erase(record.rails[rail].registration.remote.key);
  }
  const bool is_fenced =
      std::ranges::all_of(shared_.rails, [](const auto& rail) { return rail->can_fence(); });
  --memories_.at(record.memory).grants;
  shared_.due.push_back([on_closed = std::move(record.on_closed), is_fenced] {
    if (on_closed) on_closed(is_fenced);
  });
  grants_.erase(id);
}

bool RegionTable::close_key(uint32_t rail, uint64_t key) {
  const auto found = keys_[rail].find(key);
  if (found == keys_[rail].end()) return true;
  RailGrant& grant = grants_.at(found->second).rails[rail];
  close(rail, grant);
  return grant.state == RailGrant::State::kClosed;
}

uint64_t RegionTable::region_closed(uint32_t rail, RailRegionId id) {
  const auto closing = closing_[rail].extract(id.value);
  if (closing.empty()) return 0;
  RailGrant& grant = grants_.at(closing.mapped()).rails[rail];
  grant.state = RailGrant::State::kClosed;
  const uint64_t key = grant.registration.remote.key;
  forget_if_closed(closing.mapped());
  return key;
}

Result<TargetId> RegionTable::add_target(PeerId peer, uint32_t rails_count,
                                         RegionDescriptor descriptor) {
  if (targets_.size() >= shared_.options.regions_max) return full_error("targets");
  if (descriptor.rails.size() < rails_count) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("the peer's region has keys for {} rails, but {} rails reach it",
                                  descriptor.rails.size(), rails_count));
  }
  const TargetId id{++ids_made_};
  targets_.emplace(id, Target{.peer = peer, .descriptor = std::move(descriptor)});
  return id;
}

Target* RegionTable::find_target(TargetId id) {
  const auto found = targets_.find(id);
  return found == targets_.end() ? nullptr : &found->second;
}

Result<void> RegionTable::remove_target(TargetId id) {
  const Target* target = find_target(id);
  if (target == nullptr) return make_error(Code::kInvalidArgument, "there is no such target");
  if (target->uses > 0) {
    return make_error(Code::kFailedPrecondition,
                      fmt::format("a target of {} bytes is still used by {} writes; end them first",
                                  target->descriptor.bytes, target->uses));
  }
  targets_.erase(id);
  return {};
}

}  // namespace tandem::transfer
