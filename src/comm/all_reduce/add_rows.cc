#include "comm/all_reduce/add_rows.h"

#include "device/dispatch.h"

namespace tandem::comm {

Result<void> add_rows_cpu(Stream& stream, const AddRowsArgs& args);

Result<void> add_rows(Stream& stream, const AddRowsArgs& args) {
  TANDEM_CHECK(!args.rows.empty(), "a sum of something");
  return dispatch("add_rows", stream, args, add_rows_cpu);
}

}  // namespace tandem::comm
