#pragma once

#include <cstddef>

namespace tandem::cpu {

/// Memory for std::free, at least 64-byte aligned, contents undefined; nullptr when there is none.
///
/// From a few megabytes on it asks the kernel for huge pages: matrix kernels touch a new row, hence
/// a new 4 KiB page, with every few loads, and a page walk in a virtual machine costs more than the
/// load.
void* allocate_large(size_t bytes);

}  // namespace tandem::cpu
