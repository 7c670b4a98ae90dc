#pragma once

#include <cstdint>
#include <span>

#include "text/unicode.h"

/// The data behind unicode.h, each table sorted by its first fields. Only unicode.cc reads it.
namespace tandem::text::unicode_tables {

struct ClassRange {
  char32_t first;
  char32_t last;
  CharacterClass character_class;
};
struct CombiningRange {
  char32_t first;
  char32_t last;
  uint8_t combining_class;
};
struct CodePointRange {
  char32_t first;
  char32_t last;
};
struct Decomposition {
  char32_t code_point;
  uint16_t offset;  ///< into kDecompositionPool
  uint16_t length;
};
struct Composition {
  char32_t first;
  char32_t second;
  char32_t composite;
};

extern const std::span<const ClassRange> kClassRanges;
extern const std::span<const CombiningRange> kCombiningRanges;
extern const std::span<const CodePointRange> kUnstableRanges;
extern const std::span<const Decomposition> kDecompositions;
extern const std::span<const char32_t> kDecompositionPool;
extern const std::span<const Composition> kCompositions;

}  // namespace tandem::text::unicode_tables
