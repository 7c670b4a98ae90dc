#include "engine/step_message.h"

#include <algorithm>

#include "engine/step_memory.h"

namespace tandem::engine {
namespace {

constexpr size_t kNumberWords = 4;  // the plan's and the step's
constexpr size_t kCounts = 4;
constexpr size_t kHeader = kNumberWords + kCounts;

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

bool is_below(int64_t value, int64_t end) {
  return value >= 0 && value < end;
}

/// Whether a sequence has the positions and slots that follow from its length and pages.
bool is_sequence(const model::StepInput& input, int64_t sequence, const Limits& limits) {
  const int64_t start = input.query_start[sequence];
  const int64_t end = input.query_start[sequence + 1];
  const int64_t kv_tokens = input.kv_tokens[sequence];
  const int64_t page_tokens = limits.page_tokens;
  if (start < 0 || start >= end || end > input.tokens.size()) return false;
  if (kv_tokens < end - start || kv_tokens > limits.model_length_max) return false;
  const int64_t pages_count = (kv_tokens + page_tokens - 1) / page_tokens;
  if (pages_count > input.page_table.shape[1]) return false;
  const int32_t* pages = input.page_table.row(sequence);
  for (int64_t i = 0; i < pages_count; ++i) {
    if (!is_below(pages[i], limits.pages_total)) return false;
  }
  int64_t position = kv_tokens - (end - start);
  for (int64_t token = start; token < end; ++token, ++position) {
    const int64_t slot = pages[position / page_tokens] * page_tokens + position % page_tokens;
    if (input.positions[token] != position || input.slots[token] != slot) return false;
  }
  return true;
}

bool is_step(const model::StepInput& input, const Limits& limits) {
  const int64_t sequences = input.kv_tokens.size();
  if (input.query_start[0] != 0 || input.query_start[sequences] != input.tokens.size()) {
    return false;
  }
  for (int64_t s = 0; s < sequences; ++s) {
    if (!is_sequence(input, s, limits)) return false;
  }
  const auto all_below = [](const TensorView<const int32_t, 1>& values, int64_t end) {
    return std::all_of(values.data, values.data + values.size(),
                       [end](int32_t value) { return is_below(value, end); });
  };
  return all_below(input.tokens, limits.vocabulary_size) &&
         all_below(input.logits_rows, input.tokens.size());
}

Error no_step() {
  return make_error(Code::kDataLoss,
                    "what the leader sent is no step within the limits; do all "
                    "ranks run with the same flags?");
}

}  // namespace

/// No index tensor depends on the type of keys and values.
StepMessage::StepMessage(const Limits& limits)
    : limits_(limits), tensors_(StepMemory::options_of(limits, DType::kBF16).tensors()) {
  words_.reserve(bytes_max(tensors_) / sizeof(int32_t));
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
  const int64_t pages = (kv_tokens_most + tensors_.page_tokens - 1) / tensors_.page_tokens;
  words_.assign({static_cast<int32_t>(step.plan_id), static_cast<int32_t>(step.plan_id >> 32),
                 static_cast<int32_t>(step.number), static_cast<int32_t>(step.number >> 32),
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
  if (message.size() < kHeader * sizeof(int32_t)) return no_step();
  const auto* header = reinterpret_cast<const int32_t*>(message.data());
  const int32_t* words = header + kNumberWords;
  const auto within = [&](size_t i, int64_t most) { return words[i] >= 0 && words[i] <= most; };
  if (!within(0, tensors_.tokens_max) || !within(1, tensors_.sequences_max) ||
      !within(2, tensors_.rows_max) || !within(3, tensors_.pages_max) ||
      message.size() != words_of(words[0], words[1], words[2], words[3]) * sizeof(int32_t)) {
    return no_step();
  }
  Reader reader(words + kCounts);
  const auto number = [header](int i) {
    return static_cast<uint32_t>(header[i]) |
           static_cast<uint64_t>(static_cast<uint32_t>(header[i + 1])) << 32;
  };
  Step step{.number = number(2), .plan_id = number(0)};
  model::StepInput& input = step.input;
  input.tokens = reader.vector(words[0]);
  input.positions = reader.vector(words[0]);
  input.slots = reader.vector(words[0]);
  input.query_start = reader.vector(words[1] + 1);
  input.kv_tokens = reader.vector(words[1]);
  input.page_table = reader.matrix(words[1], words[3]);
  input.logits_rows = reader.vector(words[2]);
  if (!is_step(input, limits_)) return no_step();
  return step;
}

}  // namespace tandem::engine
