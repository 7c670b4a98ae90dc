#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "transfer/testing/loopback_world.h"

namespace tandem::transfer {

inline constexpr uint64_t kPairBytes = 64 * 1024;
inline constexpr auto kPairPoison = std::byte{0xee};

/// A source engine that may write into a target engine.
struct EnginePair {
  explicit EnginePair(LoopbackWorld::EngineSetup setup = {}, uint64_t seed = 1) : world(seed) {
    setup.options.name = "source";
    source = &world.add_engine(setup);
    setup.options.name = "target";
    setup.on_message = [this](std::span<const std::byte> bytes) {
      messages.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    target = &world.add_engine(setup);
    for (size_t i = 0; i < kPairBytes; ++i)
      source_bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    expected = target_bytes;
    source_memory = source->add_memory({source_bytes.data(), kPairBytes}).value();
    target_memory = target->add_memory({target_bytes.data(), kPairBytes}).value();
    peer = source->add_peer("target", target->address()).value();
    grant = target->grant(target_memory).value();
    target_id = source->add_target(peer, grant.descriptor).value();
  }

  WritePath path() const { return {.source = source_memory, .target = target_id}; }
  TransferId begin(std::optional<Arrival> arrival, bool is_sole_writer = true) {
    return source
        ->begin({.arrival = arrival,
                 .is_sole_writer = is_sole_writer,
                 .on_end =
                     [this](const TransferEnd& told) {
                       ++ends;
                       end = told;
                     }})
        .value();
  }
  void expect(Arrival arrival, uint64_t count) {
    ASSERT_TRUE(target->expect(arrival, count, [this] { ++completions; }).ok());
  }
  void expect_copied(const WriteRange& range) {
    std::memcpy(expected.data() + range.target_offset, source_bytes.data() + range.source_offset,
                range.bytes);
  }

  LoopbackWorld world;
  TransferEngine* source = nullptr;
  TransferEngine* target = nullptr;
  std::vector<std::byte> source_bytes = std::vector<std::byte>(kPairBytes);
  std::vector<std::byte> target_bytes = std::vector<std::byte>(kPairBytes, kPairPoison);
  std::vector<std::byte> expected;
  MemoryId source_memory, target_memory;
  PeerId peer;
  Grant grant;
  TargetId target_id;
  int ends = 0;
  int completions = 0;
  TransferEnd end;
  std::vector<std::string> messages;
};

}  // namespace tandem::transfer
