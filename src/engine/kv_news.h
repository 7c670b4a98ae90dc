#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "engine/ports.h"

namespace tandem::engine {

/// One call of KvImport or KvExport, kept until the engine's next step.
struct KvNews {
  enum class Kind : uint8_t { kArrived, kFailed, kDrained, kDelivered };
  Kind kind = Kind::kArrived;
  ImportId import;             ///< but for kDelivered
  RequestId request;           ///< with kDelivered
  std::optional<Error> error;  ///< with kFailed
  AfterFailure then = AfterFailure::kEnd;
};

/// Both of the engine's own ports as one stream of news.
class KvPorts : public KvImport, public KvExport {
 public:
  void arrived(ImportId import) final { tell({.kind = KvNews::Kind::kArrived, .import = import}); }
  void failed(ImportId import, Error error, AfterFailure then) final {
    tell(
        {.kind = KvNews::Kind::kFailed, .import = import, .error = std::move(error), .then = then});
  }
  void drained(ImportId import) final { tell({.kind = KvNews::Kind::kDrained, .import = import}); }
  void delivered(RequestId request) final {
    tell({.kind = KvNews::Kind::kDelivered, .request = request});
  }
  virtual void tell(KvNews news) = 0;
};

}  // namespace tandem::engine
