#include "kv/kv_layout.h"

#include <fmt/format.h>

#include "base/check.h"

namespace tandem::kv {
namespace {

// Far above any model; together they keep the bytes of a page at 2^34 or less.
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kHeadsMax = 1024;
constexpr uint32_t kHeadDimMax = 1024;
constexpr uint32_t kPageTokensMax = 4096;
constexpr uint32_t kPagesMax = 1u << 28;  // as the cache manager's
constexpr uint32_t kRanksMax = 1024;
// The product of all of them is an offset that 64 bits hold.
static_assert(uint64_t{kHeadsMax} * kHeadDimMax * kPageTokensMax * sizeof(float) <=
              INT64_MAX / kPagesMax);

std::string element_name(KvElement element) {
  switch (element) {
    case KvElement::kF32:
      return "f32";
    case KvElement::kBF16:
      return "bf16";
  }
  return fmt::format("unknown type {}", static_cast<int>(element));
}

std::string format_name(uint32_t format) {
  return format == kKvFormat ? fmt::format("{} ([page][kv_head][token][head_dim])", format)
                             : fmt::format("{} (unknown here)", format);
}

Error bad_layout(const std::string& what) {
  return make_error(Code::kInvalidArgument, "kv layout: " + what);
}

Result<void> check_range(const char* field, uint64_t value, uint64_t first, uint64_t last) {
  if (value >= first && value <= last) return {};
  return bad_layout(fmt::format("{} is {}; it must be in [{}, {}]", field, value, first, last));
}

}  // namespace

uint32_t element_bytes(KvElement element) {
  switch (element) {
    case KvElement::kF32:
      return 4;
    case KvElement::kBF16:
      return 2;
  }
  return 0;
}

std::vector<HeadRange> KvLayout::even_heads(uint32_t kv_heads, uint32_t ranks_count) {
  TANDEM_CHECK(kv_heads > 0 && ranks_count > 0, "there are heads and ranks");
  std::vector<HeadRange> ranges(ranks_count);
  if (ranks_count <= kv_heads) {
    TANDEM_CHECK(kv_heads % ranks_count == 0, "heads are shared evenly");
    const uint32_t share = kv_heads / ranks_count;
    for (uint32_t rank = 0; rank < ranks_count; ++rank) {
      ranges[rank] = {rank * share, (rank + 1) * share};
    }
    return ranges;
  }
  TANDEM_CHECK(ranks_count % kv_heads == 0, "heads are copied evenly");
  const uint32_t copies = ranks_count / kv_heads;
  for (uint32_t rank = 0; rank < ranks_count; ++rank) {
    ranges[rank] = {rank / copies, rank / copies + 1};
  }
  return ranges;
}

Result<void> validate(const KvLayout& layout) {
  TANDEM_TRY(check_range("layers", layout.layers, 1, kLayersMax));
  TANDEM_TRY(check_range("mtp_layers", layout.mtp_layers, 0, layout.layers - 1));
  TANDEM_TRY(check_range("kv_heads", layout.kv_heads, 1, kHeadsMax));
  TANDEM_TRY(check_range("head_dim", layout.head_dim, 1, kHeadDimMax));
  TANDEM_TRY(check_range("page_tokens", layout.page_tokens, 1, kPageTokensMax));
  TANDEM_TRY(check_range("pages_total", layout.pages_total, 1, kPagesMax));
  TANDEM_TRY(check_range("ranks", layout.rank_heads.size(), 1, kRanksMax));
  if (element_bytes(layout.element) == 0) {
    return bad_layout("element is of " + element_name(layout.element) + "; use f32 or bf16");
  }
  std::vector<bool> held(layout.kv_heads, false);
  for (uint32_t rank = 0; rank < layout.ranks_count(); ++rank) {
    const HeadRange heads = layout.rank_heads[rank];
    if (heads.first >= heads.end || heads.end > layout.kv_heads) {
      return bad_layout(fmt::format("rank {} holds heads [{}, {}) of {}", rank, heads.first,
                                    heads.end, layout.kv_heads));
    }
    for (uint32_t head = heads.first; head < heads.end; ++head) held[head] = true;
  }
  for (uint32_t head = 0; head < layout.kv_heads; ++head) {
    if (!held[head]) return bad_layout(fmt::format("no rank holds head {}", head));
  }
  return {};
}

std::vector<LayoutMismatch> layout_mismatches(const KvLayout& source, const KvLayout& target) {
  std::vector<LayoutMismatch> mismatches;
  const auto compare = [&](const char* field, std::string ours, std::string theirs) {
    if (ours != theirs) mismatches.push_back({field, std::move(ours), std::move(theirs)});
  };
  const auto compare_number = [&](const char* field, uint32_t ours, uint32_t theirs) {
    compare(field, fmt::to_string(ours), fmt::to_string(theirs));
  };
  compare("format", format_name(source.format), format_name(target.format));
  compare("element", element_name(source.element), element_name(target.element));
  compare_number("layers", source.layers, target.layers);
  compare_number("mtp_layers", source.mtp_layers, target.mtp_layers);
  compare_number("kv_heads", source.kv_heads, target.kv_heads);
  compare_number("head_dim", source.head_dim, target.head_dim);
  return mismatches;
}

Result<void> check_match(const KvLayout& source, const KvLayout& target) {
  const auto mismatches = layout_mismatches(source, target);
  if (mismatches.empty()) return {};
  std::string text = "kv layouts do not match:";
  for (const LayoutMismatch& mismatch : mismatches) {
    text += fmt::format("{} {} is {} at the source and {} at the target",
                        &mismatch == &mismatches.front() ? "" : ";", mismatch.field,
                        mismatch.source, mismatch.target);
  }
  return make_error(Code::kFailedPrecondition,
                    text + "; start both workers with one model, one build and one --dtype");
}

}  // namespace tandem::kv
