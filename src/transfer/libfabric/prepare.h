#pragma once

namespace tandem::transfer {

/// The setting of libfabric that makes a removed peer's connection end.
inline constexpr const char* kCutsConnections = "FI_AV_REMOVE_CLEANUP";

/// Makes libfabric behave: what it took of this process's signals before main() is given back, and
/// a peer's connection can be cut, which fencing over tcp needs. Call it first in main(), before
/// there is a second thread (it sets an environment variable).
void prepare_libfabric();

}  // namespace tandem::transfer
