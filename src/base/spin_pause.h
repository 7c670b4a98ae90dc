#pragma once

namespace tandem {

/// Tells the processor that this thread spins: it frees the core's other thread and saves power.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tandem
