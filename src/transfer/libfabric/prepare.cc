#include "transfer/libfabric/prepare.h"

#include <cstdlib>

#include "base/check.h"
#include "io/signals.h"

namespace tandem::transfer {

void prepare_libfabric() {
  // libpsm-infinipath, which libfabric brings along, installs handlers that print and exit.
  io::reset_signals();
  TANDEM_CHECK(::setenv(kCutsConnections, "1", 1) == 0, "no memory for a setting");
}

}  // namespace tandem::transfer
