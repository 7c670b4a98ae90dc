#pragma once

#include <string>

namespace tandem::transfer {

/// Which network a rail uses, and from where.
struct LibfabricOptions {
  /// `shm`, `tcp`, `verbs` or `efa`; or libfabric's own name, for others that can do the same.
  std::string provider = "tcp";
  /// An interface or device ("eth0", "mlx5_0") or an address of this host; empty: the first.
  std::string interface;
};

}  // namespace tandem::transfer
