// What goes wrong in a TransferExercise, and how source and target go on.
#include <algorithm>

#include "transfer/testing/transfer_exercise_parts.h"

namespace tandem::transfer {

using namespace std::chrono_literals;

void TransferExercise::draw_faults() {
  const auto maybe = [&](double chance) { return choose_(3) == 0 ? chance : 0.0; };
  world_.fabric.set_faults({.delay_min = std::chrono::microseconds(choose_(50)),
                            .delay_max = std::chrono::microseconds(50 + choose_(1000)),
                            .full = maybe(0.2),
                            .duplicate = maybe(0.3),
                            .lost = maybe(0.01),
                            .not_sent = maybe(0.01),
                            .unknown = maybe(0.02),
                            .lands_late = maybe(0.5),
                            .late_max = 60ms,
                            .message_lost = maybe(0.3)});
}

void TransferExercise::start_source(uint32_t index) {
  Source& source = *sources_[index];
  setup_.options.name = "source";
  world_.engines[1 + index] = world_.make_engine(setup_);
  source.engine = world_.engines[1 + index].get();
  for (std::byte& byte : source.memory) byte = random_byte();
  std::ranges::fill(source.page_users, 0);
  source.memory_id =
      source.engine->add_memory({source.memory.data(), source.memory.size()}).value();
  source.peer = source.engine->add_peer("target", world_.engines[0]->address()).value();
}

/// The target makes a new grant and tells the source.
void TransferExercise::meet(Source& source) {
  const Grant grant = world_.engines[0]->grant(memory_id_).value();
  source.grant = grant.id;
  source.grant_number = ++grants_made_;
  if (source.engine->open_paths(source.peer) == 0) {
    source.engine->close_peer(source.peer);
    source.peer = source.engine->add_peer("target", world_.engines[0]->address()).value();
  }
  source.target = source.engine->add_target(source.peer, grant.descriptor).value();
}

void TransferExercise::fence(Source& source) {
  if (source.is_revoking) return;
  source.is_revoking = true;
  ++seen_.revocations;
  world_.engines[0]->revoke(source.grant, [this, number = source.grant_number](bool is_fenced) {
    closed(number, is_fenced);
  });
}

void TransferExercise::closed(uint64_t grant_number, bool is_fenced) {
  expect(is_fenced, "a revoked grant is not fenced");
  for (const auto& job : jobs_) {
    if (job->grant_number != grant_number) continue;
    stop_waiting(*job);
    give_back_pages(*job);
  }
  for (const auto& source : sources_) {
    if (source->grant_number != grant_number) continue;
    source->is_revoking = false;
    meet(*source);
  }
}

void TransferExercise::restart(Source& source) {
  ++seen_.restarts;
  ++source.life;
  world_.set_stopped(*source.engine, false);
  world_.engines[1 + source.index] = nullptr;
  start_source(source.index);
  // It knows no grant any more, and what the old one had posted may still land.
  fence(source);
}

void TransferExercise::fail_rail() {
  const uint32_t engine = choose_(1 + kSources);
  const uint32_t rail = choose_(setup_.rails_count);
  if (engine == 0) {
    if (target_rails_alive_ == 1) return;  // the target itself does not die
    --target_rails_alive_;
  }
  if (world_.engines[engine]->rails().size() > 1) ++seen_.takeovers;
  world_.fabric.fail_rail(world_.rail(*world_.engines[engine], rail));
}

void TransferExercise::disturb_link(bool is_cut) {
  const uint32_t rail = choose_(setup_.rails_count);
  const TransferEngine& source = *world_.engines[1 + choose_(kSources)];
  const bool is_on = choose_(2) == 0;
  if (is_cut) {
    world_.fabric.set_cut(world_.rail(source, rail), world_.rail(*world_.engines[0], rail), is_on);
  } else {
    world_.fabric.set_clogged(world_.rail(source, rail), world_.rail(*world_.engines[0], rail),
                              is_on);
  }
}

}  // namespace tandem::transfer
