#include "transfer/testing/transfer_exercise.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transfer/testing/transfer_exercise_parts.h"

namespace tandem::transfer {

using namespace std::chrono_literals;

TransferExercise::TransferExercise(Choose choose)
    : choose_(std::move(choose)),
      bytes_(choose_(1 << 16)),
      world_(choose_(1 << 16)),
      memory_(kPages * kPageBytes),
      is_writable_(memory_.size()),
      is_page_lent_(kPages) {
  setup_.rails_count = 1 + choose_(3);
  target_rails_alive_ = setup_.rails_count;
  setup_.rail.limits.write_bytes_max = 16 + choose_(64);
  setup_.rail.limits.posts_max = 1 + choose_(12);
  setup_.rail.has_virtual_addresses = choose_(2) == 0;
  setup_.options.stripe_bytes = 8 + choose_(64);
  setup_.options.slices_max = 4 + choose_(60);
  setup_.options.transfers_max = 1 + choose_(6);
  setup_.options.arrival_slots = kSlots;
  setup_.options.steps_max = 1 + choose_(40);
  setup_.options.stall_max = 40ms;
  setup_.options.fence_max = 30ms;
  setup_.options.fence_retry = 3ms;
  for (std::byte& byte : memory_) byte = random_byte();
  expected_ = memory_;
  for (uint16_t& epoch : epochs_) epoch = static_cast<uint16_t>(65'530 + choose_(6));
  setup_.options.name = "target";
  memory_id_ = world_.add_engine(setup_).add_memory({memory_.data(), memory_.size()}).value();
  for (uint32_t i = 0; i < kSources; ++i) {
    world_.engines.emplace_back();
    sources_[i] = std::make_unique<Source>();
    sources_[i]->index = i;
    start_source(i);
    meet(*sources_[i]);
  }
  calm_ = 1u << choose_(5);
  draw_faults();
}

TransferExercise::~TransferExercise() = default;

void TransferExercise::expect(bool holds, const char* what) const {
  if (holds) return;
  std::fprintf(stderr, "transfer exercise: %s\n", what);
  std::abort();
}

void TransferExercise::start_job() {
  Source& source = *sources_[choose_(kSources)];
  const auto slot = static_cast<uint16_t>(choose_(kSlots));
  if (source.is_revoking || is_slot_waiting_[slot]) return;
  auto job = std::make_unique<Job>();
  job->source = source.index;
  job->life = source.life;
  job->grant_number = source.grant_number;
  const uint32_t pages_count = 1 + choose_(5);
  for (uint32_t tries = 0; tries < 20 && job->pages.size() < pages_count; ++tries) {
    const uint32_t page = choose_(kPages);
    const bool is_taken =
        is_page_lent_[page] || std::ranges::find(job->pages, page) != job->pages.end();
    if (!is_taken) job->pages.push_back(page);
  }
  for (uint32_t page : job->pages) {
    const uint32_t source_page = choose_(kPages);
    job->source_pages.push_back(source_page);
    const uint32_t first = choose_(kPageBytes);
    for (uint32_t at = first; at < kPageBytes && choose_(4) != 0;) {
      const uint32_t bytes = 1 + choose_(kPageBytes - at);
      job->slices.push_back(
          {uint64_t{source_page} * kPageBytes + at, uint64_t{page} * kPageBytes + at, bytes});
      job->is_immediate.push_back(false);
      at += bytes;
    }
    if (choose_(8) == 0) {
      job->slices.push_back({});
      job->is_immediate.push_back(true);
    }
  }
  job->number = ++jobs_made_;
  job->arrival = {slot, ++epochs_[slot]};
  const auto transfer = source.engine->begin(
      {.arrival = job->arrival,
       .is_sole_writer = true,
       .on_end = [this, number = job->number](const TransferEnd& end) { ended(number, end); }});
  if (!transfer.ok()) return;  // at the limit; the epoch is left out
  job->transfer = *transfer;
  job->source_bytes = source.memory;
  is_slot_waiting_[slot] = true;
  for (uint32_t page : job->pages) is_page_lent_[page] = true;
  for (uint32_t page : job->source_pages) ++source.page_users[page];
  for (const WriteRange& slice : job->slices) {
    std::fill_n(is_writable_.begin() + static_cast<std::ptrdiff_t>(slice.target_offset),
                slice.bytes, true);
  }
  const auto armed = world_.engines[0]->expect(job->arrival, job->slices.size(),
                                               [this, number = job->number] { completed(number); });
  expect(armed.ok(), "a free slot cannot be armed");
  jobs_.push_back(std::move(job));
}

TransferExercise::Job* TransferExercise::any_job() {
  return jobs_.empty() ? nullptr : jobs_[choose_(static_cast<uint32_t>(jobs_.size()))].get();
}

void TransferExercise::submit_more() {
  Job* job = any_job();
  if (job == nullptr || job->ends > 0) return;
  Source& source = *sources_[job->source];
  if (source.life == job->life) submitted(source, *job);
}

void TransferExercise::submitted(Source& source, Job& job) {
  if (source.grant_number != job.grant_number || source.is_revoking) {
    return source.engine->cancel(job.transfer);
  }
  const size_t left = job.slices.size() - job.submitted_count;
  const size_t count = is_finishing_ ? left : std::min<size_t>(left, 1 + choose_(6));
  for (size_t i = 0; i < count; ++i) {
    const size_t at = job.submitted_count;
    const WritePath path{.source = source.memory_id, .target = source.target};
    const auto result =
        job.is_immediate[at]
            ? source.engine->write_imm(job.transfer, source.target)
            : source.engine->write(job.transfer, path, std::span(job.slices).subspan(at, 1));
    if (!result.ok() && result.error().code == Code::kResourceExhausted) return;
    // Failed, and its end is on the way; or of an old grant, which its owner would cancel.
    if (!result.ok()) return source.engine->cancel(job.transfer);
    ++job.submitted_count;
  }
  if (job.submitted_count == job.slices.size()) {
    static_cast<void>(source.engine->finish(job.transfer).ok());
  }
}

void TransferExercise::cancel_job() {
  Job* job = any_job();
  if (job == nullptr) return;
  Source& source = *sources_[job->source];
  if (source.life == job->life) source.engine->cancel(job->transfer);
}

void TransferExercise::completed(uint64_t number) {
  const auto found = std::ranges::find(jobs_, number, [](const auto& job) { return job->number; });
  expect(found != jobs_.end(), "a count completes for a job that is over");
  Job& job = **found;
  expect(++job.completions == 1, "a count completes twice");
  expect(job.is_waiting, "a count completes that nobody waits for");
  expect(job.submitted_count == job.slices.size(), "a count completes before all was submitted");
  for (const WriteRange& slice : job.slices) {
    expect(std::memcmp(memory_.data() + slice.target_offset,
                       job.source_bytes.data() + slice.source_offset, slice.bytes) == 0,
           "a count completes before its bytes are there");
  }
  ++seen_.completions;
  job.is_waiting = false;
  is_slot_waiting_[job.arrival.slot] = false;
  give_back_pages(job);
}

void TransferExercise::ended(uint64_t number, const TransferEnd& end) {
  const auto found = std::ranges::find(jobs_, number, [](const auto& job) { return job->number; });
  expect(found != jobs_.end(), "a transfer ends that is over");
  Job& job = **found;
  expect(++job.ends == 1, "a transfer ends twice");
  job.ended_well = end.outcome.ok();
  expect(!end.outcome.ok() || end.bytes_delivered == end.bytes_submitted,
         "a transfer ends well without all of its bytes");
  expect(!end.outcome.ok() || end.is_settled, "a transfer ends well but is not settled");
  forget_source_pages(job);
  if (end.outcome.ok()) return;
  if (end.is_settled) {
    ++seen_.failures_settled;
    stop_waiting(job);
    give_back_pages(job);
  } else {
    ++seen_.failures_unsettled;
    Source& source = *sources_[job.source];
    if (source.grant_number == job.grant_number) fence(source);
  }
}

void TransferExercise::stop_waiting(Job& job) {
  if (!job.is_waiting) return;
  // False when its last immediate is counted and the callback is due; then it completes yet.
  if (!world_.engines[0]->cancel_expected(job.arrival)) return;
  job.is_waiting = false;
  is_slot_waiting_[job.arrival.slot] = false;
}

void TransferExercise::give_back_pages(Job& job) {
  if (!job.holds_pages || job.is_waiting) return;
  job.holds_pages = false;
  for (uint32_t page : job.pages) {
    is_page_lent_[page] = false;
    const auto first = static_cast<std::ptrdiff_t>(page * kPageBytes);
    std::fill_n(is_writable_.begin() + first, kPageBytes, false);
    std::generate_n(expected_.begin() + first, kPageBytes, [&] { return random_byte(); });
    std::copy_n(expected_.begin() + first, kPageBytes, memory_.begin() + first);
  }
}

void TransferExercise::forget_source_pages(Job& job) {
  if (!job.holds_source) return;
  job.holds_source = false;
  Source& source = *sources_[job.source];
  if (source.life != job.life) return;
  for (uint32_t page : job.source_pages) {
    if (--source.page_users[page] > 0) continue;
    std::generate_n(source.memory.begin() + page * kPageBytes, kPageBytes,
                    [&] { return random_byte(); });
  }
}

void TransferExercise::step() {
  const uint32_t what = choose_(400);
  if (what < 40) {
    start_job();
  } else if (what < 120) {
    submit_more();
  } else if (what >= 142 || choose_(calm_) != 0) {
    world_.step();
  } else if (what < 124) {
    cancel_job();
  } else if (what < 126) {
    fence(*sources_[choose_(kSources)]);
  } else if (what < 128) {
    restart(*sources_[choose_(kSources)]);
  } else if (what < 130) {
    fail_rail();
  } else if (what < 134) {
    disturb_link(false);
  } else if (what < 136) {
    disturb_link(true);
  } else if (what < 138) {
    draw_faults();
  } else {
    world_.set_stopped(*world_.engines[choose_(1 + kSources)], choose_(2) == 0);
  }
  check_memory();
  check_bounds();
  for (const auto& source : sources_) {
    if (source->is_revoking || source->engine->open_paths(source->peer) > 0) continue;
    fence(*source);  // it meets anew, with other paths
  }
  std::erase_if(jobs_, [&](const auto& job) {
    const bool is_source_gone = sources_[job->source]->life != job->life;
    return !job->is_waiting && !job->holds_pages && (job->ends > 0 || is_source_gone);
  });
}

void TransferExercise::check_memory() const {
  for (size_t i = 0; i < memory_.size(); ++i) {
    expect(is_writable_[i] || memory_[i] == expected_[i], "a byte changed that nobody may write");
  }
}

void TransferExercise::check_bounds() const {
  for (const auto& source : sources_) {
    expect(source->engine->slices_count() <= setup_.options.slices_max, "too many slices wait");
    expect(source->engine->transfers_count() <= setup_.options.transfers_max,
           "too many transfers are under way");
  }
}

void TransferExercise::finish_all() {
  is_finishing_ = true;
  world_.fabric.set_faults({.delay_max = 100us});
  world_.stopped.clear();
  for (uint32_t rail = 0; rail < setup_.rails_count; ++rail) {
    for (uint32_t source = 0; source < kSources; ++source) {
      const Rail& from = world_.rail(*world_.engines[1 + source], rail);
      world_.fabric.set_clogged(from, world_.rail(*world_.engines[0], rail), false);
      world_.fabric.set_cut(from, world_.rail(*world_.engines[0], rail), false);
    }
  }
  for (int round = 0; round < 1000 && !jobs_.empty(); ++round) {
    for (const auto& job : jobs_) {
      Source& source = *sources_[job->source];
      if (source.life == job->life && job->ends == 0) submitted(source, *job);
    }
    expect(world_.run(), "it does not come to rest");
    check_memory();
    std::erase_if(jobs_, [&](const auto& job) {
      const bool is_source_gone = sources_[job->source]->life != job->life;
      const bool is_over = job->ends > 0 || is_source_gone;
      expect(!is_over || !job->ended_well || job->completions == 1 || !job->is_waiting,
             "a transfer ended well and its count did not complete");
      return is_over && !job->is_waiting && !job->holds_pages;
    });
  }
  expect(jobs_.empty(), "a transfer or a wait does not end");
  for (const auto& source : sources_) {
    expect(source->engine->transfers_count() == 0, "a transfer is left");
    expect(source->engine->slices_count() == 0, "a slice is left");
    seen_.immediates_repeated += source->engine->counts().immediates_repeated;
    seen_.writes_repeated += source->engine->counts().writes_repeated;
  }
}

}  // namespace tandem::transfer
