// Contract   out[t] = table[tokens[t]], see embed.h
// Work       copies tokens * hidden elements; memory bound, tiny beside any product
// Reference  embed_test.cc
#include <algorithm>

#include "cpu/cpu_device.h"
#include "cpu/vector.h"
#include "ops/embed/embed.h"

namespace tandem::ops {

Result<void> embed_cpu(Stream& stream, const EmbedArgs& args) {
  const int64_t hidden = args.table.shape[1];
  cpu::cpu_stream(stream).team().parallel_for(args.tokens.shape[0], [&](int64_t t, int) {
    const int64_t row = args.tokens[t] - args.first_token;
    if (args.is_part && (row < 0 || row >= args.table.shape[0])) {
      std::fill_n(args.out.row(t), hidden, -0.0f);
      return;
    }
    TANDEM_DCHECK(row >= 0 && row < args.table.shape[0], "token outside the vocabulary");
    if (args.table.dtype == DType::kF32) {
      std::copy_n(args.table.as<const float, 2>().row(row), hidden, args.out.row(t));
    } else {
      cpu::to_float(args.out.row(t), args.table.as<const bf16, 2>().row(row), hidden);
    }
  });
  return {};
}

}  // namespace tandem::ops
