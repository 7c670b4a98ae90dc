#include "cpu/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tandem::cpu::internal {

bool enable_amx() {
  // CPUID leaf 7: EDX bit 22 is AMX-BF16, bit 24 AMX-TILE (Intel SDM).
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kWanted = 1u << 22 | 1u << 24;
  if ((d & kWanted) != kWanted) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace tandem::cpu::internal
#else
namespace tandem::cpu::internal {
bool enable_amx() {
  return false;
}
}  // namespace tandem::cpu::internal
#endif
