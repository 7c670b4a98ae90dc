#include "ops/embed/embed.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> embed_cpu(Stream& stream, const EmbedArgs& args);

Result<void> embed(Stream& stream, const EmbedArgs& args) {
  TANDEM_CHECK(args.table.rank == 2, "the table is a matrix");
  TANDEM_CHECK(args.out.shape[0] == args.tokens.shape[0], "one output row per token");
  TANDEM_CHECK(args.out.shape[1] == args.table.shape[1], "a row is a table row");
  return dispatch("embed", stream, args, embed_cpu);
}

}  // namespace tandem::ops
