#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace tandem::transfer {

struct CloseLibfabric {
  template <typename T>
  void operator()(T* object) const {
    // A failure would mean that something of the object is still open: our order of members.
    static_cast<void>(fi_close(&object->fid));
  }
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};

/// Owns one object of libfabric (a fid_domain, a fid_mr, ...) and closes it.
template <typename T>
using LibfabricHandle = std::unique_ptr<T, CloseLibfabric>;

/// What a call of libfabric said, for people. `status` is its negative return value.
inline Error libfabric_error(const std::string& call, ssize_t status) {
  return make_error(status == -FI_ENOMEM ? Code::kResourceExhausted : Code::kUnavailable,
                    call + " failed: " + fi_strerror(static_cast<int>(-status)));
}

}  // namespace tandem::transfer
