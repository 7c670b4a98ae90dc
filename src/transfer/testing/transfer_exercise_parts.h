#pragma once

#include <vector>

#include "transfer/testing/transfer_exercise.h"

namespace tandem::transfer {

struct TransferExercise::Source {
  uint32_t index = 0;
  TransferEngine* engine = nullptr;
  uint64_t life = 0;  // how often it was restarted
  std::vector<std::byte> memory = std::vector<std::byte>(kPages * kPageBytes);
  std::vector<uint32_t> page_users = std::vector<uint32_t>(kPages);
  MemoryId memory_id;
  PeerId peer;
  TargetId target;
  GrantId grant;
  uint64_t grant_number = 0;  // 0: it may not write now
  bool is_revoking = false;
};

struct TransferExercise::Job {
  uint64_t number = 0;
  uint32_t source = 0;
  uint64_t life = 0;  // of the source
  uint64_t grant_number = 0;
  TransferId transfer;
  Arrival arrival;
  std::vector<uint32_t> pages;         // of the target
  std::vector<uint32_t> source_pages;  // one for each
  std::vector<WriteRange> slices;
  std::vector<std::byte> source_bytes;  // the source's memory when it began
  std::vector<bool> is_immediate;       // a slice without bytes, by write_imm
  size_t submitted_count = 0;
  bool is_waiting = true;  // at the target
  bool holds_pages = true;
  bool holds_source = true;
  int completions = 0;
  int ends = 0;
  bool ended_well = false;
};

}  // namespace tandem::transfer
