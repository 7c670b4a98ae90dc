#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tandem {

/// An integer that only compares with its own kind: `using PageId = StrongId<struct PageTag>;`.
/// Two ids of different kinds cannot be swapped in a call.
template <typename Tag, typename Int = uint32_t>
struct StrongId {
  Int value{};
  auto operator<=>(const StrongId&) const = default;
};

}  // namespace tandem

template <typename Tag, typename Int>
struct std::hash<tandem::StrongId<Tag, Int>> {
  size_t operator()(tandem::StrongId<Tag, Int> id) const noexcept {
    return std::hash<Int>{}(id.value);
  }
};
