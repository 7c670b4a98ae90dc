#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/dtype.h"
#include "model/range.h"

namespace tandem::model {

/// What is known of a tensor without touching its bytes.
struct WeightInfo {
  std::string dtype_name;      ///< as the source calls it
  std::optional<DType> dtype;  ///< nullopt: a type that no kernel of ours reads
  std::vector<int64_t> shape;
  size_t bytes = 0;
  std::string file;  ///< name of the file that holds it; empty when none does
};

/// One tensor of a checkpoint, row-major and little-endian. Borrowed from its source. The bytes of
/// old files need not be aligned to the element: copy them, do not cast the pointer.
struct WeightView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  ///< from the first element to the last
  int64_t row_stride = 0;            ///< elements from one row of a matrix to the next; 0: dense
};

/// A part of a tensor.
struct WeightSlice {
  Range rows;                    ///< of the first dimension
  std::optional<Range> columns;  ///< of a matrix; all if not given
};

/// The part of a view that holds all of a tensor.
WeightView cut(const WeightView& whole, const WeightSlice& part);

/// Where weights come from, by Hugging Face name. One thread at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual std::vector<std::string> names() const = 0;

  /// An absent name is an Error, as is a dtype that no kernel reads. The view is valid until
  /// release() of the same name or the end of the source.
  virtual Result<WeightView> tensor(const std::string& name) = 0;

  /// A part of a tensor, which it has: all that a rank reads of it. The view's shape is the part's.
  virtual Result<WeightView> slice(const std::string& name, const WeightSlice& part);

  /// The same as tensor() without the bytes, which may be costly to make or read.
  virtual Result<WeightInfo> describe(const std::string& name);

  /// Says that the tensor's bytes are not needed for now. They may be asked for again.
  virtual void release(const std::string& /*name*/) {}
};

}  // namespace tandem::model
