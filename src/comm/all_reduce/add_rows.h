#pragma once

#include <span>

#include "base/result.h"
#include "device/device.h"

namespace tandem::comm {

/// y = all rows added in the binary tree over their index.
struct AddRowsArgs {
  std::span<const float* const> rows;  ///< each as long as y
  std::span<float> y;                  ///< may be one of the rows
};

Result<void> add_rows(Stream& stream, const AddRowsArgs& args);

}  // namespace tandem::comm
