// Contract   causal grouped-query attention over paged K and V, see attention.h
// Shapes     any head_dim and page size, up to 64 query heads per kv head, any mix of chunks and
//            single tokens
// Work       4 * rows * context * head_dim flop; reads each page once per task
// Roof       decode: memory and the re-layout of K and V; prefill: the matrix path's peak
// Plan       tasks are (sequence, kv head, query tokens of 256 rows); K and V of 256 tokens are
// laid
//            out as panels, scores and outputs are panel products over all the group's query heads;
//            parts merge in ascending order. Positions past a row are minus infinity, which
//            contributes exact zeros: a row never sees who computed beside it, not even what is not
//            finite
// Measured   see docs/performance.md (tandem bench engine)
// Reference  attention_test.cc
#include <cmath>
#include <limits>

#include "cpu/cpu_device.h"
#include "cpu/vector.h"
#include "ops/attention/kv_part_cpu.h"

namespace tandem::ops {
namespace {

constexpr int64_t kPart = kAttentionSplitTokens;
// A row is one head of one query token. The layout of a part's K and V is paid once per task;
// scores and sums of 256 rows are 384 KiB, which a core's L2 holds.
constexpr int64_t kTaskRows = 256;
static_assert(kTaskRows >= kAttentionGroupMax);
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

size_t rounded(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/// Query heads that share one kv head.
int64_t group_of(const AttentionArgs& args) {
  return args.heads / args.kv.kv_heads();
}
int64_t query_tokens_per_task(const AttentionArgs& args) {
  return kTaskRows / group_of(args);
}

/// One worker's memory for up to kTaskRows rows.
struct Workspace {
  static size_t bytes(const AttentionArgs& args) {
    const size_t rows = kTaskRows;
    return rounded(KvPart::scratch_bytes(args.kv)) + rounded(rows * query_bytes(args)) +
           rounded(rows * kPart * 4) + rounded(rows * out_columns(args) * 4) +
           2 * rounded(rows * 4);
  }
  static size_t query_bytes(const AttentionArgs& args) {
    const DType dtype = args.kv.k.dtype;
    return static_cast<size_t>(cpu::padded_k(dtype, args.kv.head_dim())) * dtype_bytes(dtype);
  }
  static size_t out_columns(const AttentionArgs& args) {
    return static_cast<size_t>((args.kv.head_dim() + 63) / 64 * 64);
  }
  Workspace(const AttentionArgs& args, std::byte* at) : part(args.kv, at) {
    const size_t rows = kTaskRows;
    at += rounded(KvPart::scratch_bytes(args.kv));
    queries = at;
    at += rounded(rows * query_bytes(args));
    scores = reinterpret_cast<float*>(at);
    at += rounded(rows * kPart * 4);
    out = reinterpret_cast<float*>(at);
    at += rounded(rows * out_columns(args) * 4);
    maxima = reinterpret_cast<float*>(at);
    sums = reinterpret_cast<float*>(at + rounded(rows * 4));
  }
  KvPart part;
  std::byte* queries;  // [rows, head_dim padded] in the pool's dtype
  float* scores;       // [rows, 256]; then probabilities, in the pool's dtype in the same rows
  float* out;          // [rows, head_dim padded to 64], not yet divided
  float* maxima;       // [rows]
  float* sums;         // [rows]
};

/// One task: some query tokens of one sequence for one kv head.
class Task {
 public:
  Task(const AttentionArgs& args, cpu::PanelKernel kernel, std::byte* scratch)
      : args_(args),
        kernel_(kernel),
        w_(args, scratch),
        dtype_(args.kv.k.dtype),
        group_(group_of(args)),
        head_dim_(args.kv.head_dim()),
        out_columns_(static_cast<int64_t>(Workspace::out_columns(args))) {}

  void run(int64_t sequence, int64_t kv_head, int64_t first_query, int64_t queries) {
    first_query_ = first_query;
    rows_ = queries * group_;
    kv_head_ = kv_head;
    pages_ = args_.page_table.row(sequence);
    // Query i of the sequence's step sits at kv_tokens - (queries of the step) + i.
    first_position_ = args_.kv_tokens[sequence] - args_.query_start[sequence + 1] + first_query;
    load_queries();
    const int64_t visible = first_position_ + queries;  // tokens the last row sees
    for (int64_t start = 0; start < visible; start += kPart) {
      const int64_t count = std::min(kPart, visible - start);
      w_.part.load(pages_, kv_head, start, count);
      score(start, count);
      merge(start, count);
    }
    store();
  }

 private:
  /// Row r is head r % group of query token r / group.
  const float* query(int64_t r) const {
    return args_.q.row(first_query_ + r / group_) + (kv_head_ * group_ + r % group_) * head_dim_;
  }
  cpu::PanelRows query_rows() const {
    return {w_.queries, static_cast<int64_t>(Workspace::query_bytes(args_))};
  }

  void load_queries() {
    for (int64_t r = 0; r < rows_; ++r) {
      std::byte* row = w_.queries + r * query_rows().stride_bytes;
      if (dtype_ == DType::kF32) {
        std::copy_n(query(r), head_dim_, reinterpret_cast<float*>(row));
      } else {
        cpu::to_bf16(reinterpret_cast<bf16*>(row), query(r), head_dim_);
        if (head_dim_ % 2 != 0) reinterpret_cast<bf16*>(row)[head_dim_] = bf16{0};
      }
      w_.maxima[r] = kMinusInfinity;
      w_.sums[r] = 0.0f;
    }
    std::fill_n(w_.out, rows_ * out_columns_, 0.0f);
  }

  /// scores[r][j] = scale * q.k, minus infinity where row r does not see token start + j.
  void score(int64_t start, int64_t count) {
    for (int64_t column = 0; column < kPart; column += KvPart::kColumns) {
      if (column >= count) {
        for (int64_t r = 0; r < rows_; ++r) {
          std::fill_n(w_.scores + r * kPart + column, KvPart::kColumns, kMinusInfinity);
        }
        continue;
      }
      cpu::multiply_panel(
          kernel_, query_rows(), rows_, w_.part.key_panel(column / KvPart::kColumns), head_dim_,
          [&](int64_t r, const float* sums) {
            float* out = w_.scores + r * kPart + column;
            const int64_t seen = std::clamp<int64_t>(
                first_position_ + r / group_ + 1 - start - column, 0, KvPart::kColumns);
            for (int64_t c = 0; c < seen; ++c) out[c] = sums[c] * args_.scale;
            std::fill_n(out + seen, KvPart::kColumns - seen, kMinusInfinity);
          });
    }
  }

  /// Adds the softmax of this part to the rows that see any of it.
  void merge(int64_t start, int64_t count) {
    // Rows are in order of position: those that see nothing come first.
    const int64_t blind_tokens = std::clamp<int64_t>(start - first_position_, 0, rows_ / group_);
    const int64_t first = blind_tokens * group_;
    for (int64_t r = first; r < rows_; ++r) {
      float* scores = w_.scores + r * kPart;
      const float part_max = cpu::max_value(scores, kPart);
      const float part_sum = cpu::exp_shifted(scores, scores, part_max, kPart);
      if (dtype_ == DType::kBF16) cpu::to_bf16(reinterpret_cast<bf16*>(scores), scores, kPart);
      const float both = std::max(w_.maxima[r], part_max);
      const float old_scale = std::exp(w_.maxima[r] - both);
      const float part_scale = std::exp(part_max - both);
      w_.maxima[r] = both;
      w_.sums[r] = w_.sums[r] * old_scale + part_sum * part_scale;
      float* out = w_.out + r * out_columns_;
      cpu::scale(out, out, old_scale, head_dim_);
      part_scales_[r] = part_scale;
    }
    // A product with a probability of zero is zero unless the value is infinite or NaN. When such
    // a value lies ahead of some row, the query tokens go one by one from the last, and each takes
    // its own value with it: the rows before never meet it.
    const int64_t ahead = std::max(start, first_position_ + 1);
    if (w_.part.values_finite(pages_, kv_head_, ahead, start + count - ahead)) {
      add_values(first, rows_, count);
      return;
    }
    for (int64_t token = rows_ / group_ - 1; token >= blind_tokens; --token) {
      add_values(token * group_, (token + 1) * group_, count);
      const int64_t own = first_position_ + token - start;
      if (own < count) w_.part.clear_value(own);
    }
  }

  /// out += probabilities * V of this part, for rows [first, last).
  void add_values(int64_t first, int64_t last, int64_t count) {
    for (int64_t p = 0; p < w_.part.value_panels(); ++p) {
      const int64_t width = std::min(KvPart::kColumns, head_dim_ - p * KvPart::kColumns);
      cpu::multiply_panel(kernel_, {w_.scores + first * kPart, kPart * int64_t{sizeof(float)}},
                          last - first, w_.part.value_panel(p), count,
                          [&](int64_t r, const float* sums) {
                            float* out = w_.out + (first + r) * out_columns_ + p * KvPart::kColumns;
                            const float scale = part_scales_[first + r];
                            for (int64_t c = 0; c < width; ++c) out[c] += sums[c] * scale;
                          });
    }
  }

  void store() {
    for (int64_t r = 0; r < rows_; ++r) {
      float* out =
          args_.out.row(first_query_ + r / group_) + (kv_head_ * group_ + r % group_) * head_dim_;
      cpu::scale(out, w_.out + r * out_columns_, 1.0f / w_.sums[r], head_dim_);
    }
  }

  const AttentionArgs& args_;
  cpu::PanelKernel kernel_;
  Workspace w_;
  DType dtype_;
  int64_t group_;
  int64_t head_dim_;
  int64_t out_columns_;
  int64_t first_query_ = 0;
  int64_t first_position_ = 0;
  int64_t rows_ = 0;
  int64_t kv_head_ = 0;
  const int32_t* pages_ = nullptr;
  float part_scales_[kTaskRows];
};

}  // namespace

Result<void> attention_cpu(Stream& stream_any, const AttentionArgs& args) {
  cpu::CpuStream& stream = cpu::cpu_stream(stream_any);
  const int64_t sequences = args.kv_tokens.shape[0];
  const int64_t kv_heads = args.kv.kv_heads();
  const int64_t task_queries = query_tokens_per_task(args);

  // Scratch: per sequence its first block of query tokens, then one workspace per worker.
  const size_t index_bytes = rounded(static_cast<size_t>(sequences + 1) * sizeof(int32_t));
  const size_t workspace_bytes = Workspace::bytes(args);
  std::byte* scratch = stream.scratch(
      index_bytes + workspace_bytes * static_cast<size_t>(stream.team().threads_count()));
  auto* first_block = reinterpret_cast<int32_t*>(scratch);
  first_block[0] = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t queries = args.query_start[s + 1] - args.query_start[s];
    first_block[s + 1] =
        first_block[s] + static_cast<int32_t>((queries + task_queries - 1) / task_queries);
  }

  const cpu::PanelKernel kernel = cpu::panel_kernel(stream.path(), args.kv.k.dtype);
  stream.team().parallel_for(first_block[sequences] * kv_heads, [&](int64_t index, int worker) {
    const auto block = static_cast<int32_t>(index / kv_heads);
    const int64_t s =
        std::upper_bound(first_block, first_block + sequences + 1, block) - first_block - 1;
    const int64_t first = args.query_start[s] + (block - first_block[s]) * task_queries;
    const int64_t queries = std::min(task_queries, args.query_start[s + 1] - first);
    Task(args, kernel, scratch + index_bytes + workspace_bytes * static_cast<size_t>(worker))
        .run(s, index % kv_heads, first, queries);
  });
  return {};
}

}  // namespace tandem::ops
