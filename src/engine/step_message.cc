#include "engine/step_message.h"

#include <algorithm>

namespace tandem::engine {
namespace {

constexpr size_t kPlanWords = 2;
constexpr size_t kCounts = 4;
constexpr size_t kHeader = kPlanWords + kCounts;

size_t words_of(int64_t tokens, int64_t sequences, int64_t rows, int64_t pages) {
  return kHeader + static_cast<size_t>(3 * tokens + 2 * sequences + 1 + sequences * pages + rows);
}

/// Takes tensors one after another from a message.
class Reader {
 public:
  explicit Reader(const int32_t* at) : at_(at) {}
  TensorView<const int32_t, 1> vector(int64_t n) { return take<1>({n}); }
  TensorView<const int32_t, 2> matrix(int64_t rows, int64_t columns) {
    return take<2>({rows, columns});
  }

 private:
  template <int Rank>
  TensorView<const int32_t, Rank> take(std::array<int64_t, Rank> shape) {
    const auto view = TensorView<const int32_t, Rank>::make(at_, shape);
    at_ += view.size();
    return view;
  }
  const int32_t* at_;
};

}  // namespace

StepMessage::StepMessage(const StepTensors::Limits& limits) : limits_(limits) {
  words_.reserve(bytes_max(limits) / sizeof(int32_t));
}

size_t StepMessage::bytes_max(const StepTensors::Limits& l) {
  return words_of(l.tokens_max, l.sequences_max, l.rows_max, l.pages_max) * sizeof(int32_t);
}

std::span<const std::byte> StepMessage::encode(const Step& step) {
  const model::StepInput& input = step.input;
  const int64_t sequences = input.kv_tokens.shape[0];
  int32_t kv_tokens_most = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    kv_tokens_most = std::max(kv_tokens_most, input.kv_tokens[s]);
  }
  const int64_t pages = (kv_tokens_most + limits_.page_tokens - 1) / limits_.page_tokens;
  words_.assign({static_cast<int32_t>(step.plan_id), static_cast<int32_t>(step.plan_id >> 32),
                 static_cast<int32_t>(input.tokens.shape[0]), static_cast<int32_t>(sequences),
                 static_cast<int32_t>(input.logits_rows.shape[0]), static_cast<int32_t>(pages)});
  const auto append = [&](const int32_t* data, int64_t count) {
    words_.insert(words_.end(), data, data + count);
  };
  for (const auto& vector :
       {input.tokens, input.positions, input.slots, input.query_start, input.kv_tokens}) {
    append(vector.data, vector.size());
  }
  for (int64_t s = 0; s < sequences; ++s) append(input.page_table.row(s), pages);
  append(input.logits_rows.data, input.logits_rows.size());
  return std::as_bytes(std::span(words_));
}

Result<StepMessage::Step> StepMessage::decode(std::span<const std::byte> message) const {
  const auto* header = reinterpret_cast<const int32_t*>(message.data());
  const int32_t* words = header + kPlanWords;
  const auto within = [&](size_t i, int64_t most) { return words[i] >= 0 && words[i] <= most; };
  if (message.size() < kHeader * sizeof(int32_t) || !within(0, limits_.tokens_max) ||
      !within(1, limits_.sequences_max) || !within(2, limits_.rows_max) ||
      !within(3, limits_.pages_max) ||
      message.size() != words_of(words[0], words[1], words[2], words[3]) * sizeof(int32_t)) {
    return make_error(Code::kDataLoss,
                      "what the leader sent is no step within the limits; do all "
                      "ranks run with the same flags?");
  }
  Reader reader(words + kCounts);
  Step step{.plan_id = static_cast<uint32_t>(header[0]) |
                       static_cast<uint64_t>(static_cast<uint32_t>(header[1])) << 32};
  model::StepInput& input = step.input;
  input.tokens = reader.vector(words[0]);
  input.positions = reader.vector(words[0]);
  input.slots = reader.vector(words[0]);
  input.query_start = reader.vector(words[1] + 1);
  input.kv_tokens = reader.vector(words[1]);
  input.page_table = reader.matrix(words[1], words[3]);
  input.logits_rows = reader.vector(words[2]);
  return step;
}

}  // namespace tandem::engine
