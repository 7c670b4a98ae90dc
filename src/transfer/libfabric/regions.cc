#include "transfer/libfabric/regions.h"

#include <fmt/format.h>

#include <span>

#include "io/host.h"

namespace tandem::transfer {
namespace {

/// Nobody who was not told a key can guess it, where the provider lets us choose all of it.
Result<uint64_t> random_key(size_t key_bytes) {
  uint64_t key = 0;
  TANDEM_TRY(io::fill_random(std::as_writable_bytes(std::span(&key, 1))));
  // A reserved value: FI_KEY_NOTAVAIL.
  if (key == ~uint64_t{0}) key = 1;
  return key_bytes >= sizeof(key) ? key : key & ((uint64_t{1} << (8 * key_bytes)) - 1);
}

}  // namespace

Result<LibfabricHandle<fid_mr>> LibfabricRegions::register_with_provider(const MemoryBlock& memory,
                                                                         Access access) const {
  const bool chooses_key = !endpoint_.has(FI_MR_PROV_KEY);
  // Two equal keys of 64 bits do not happen; of fewer bits they may.
  constexpr int kTries = 16;
  int status = 0;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t key =
        chooses_key ? TANDEM_TRY(random_key(endpoint_.info().domain_attr->mr_key_size)) : 0;
    fid_mr* registration = nullptr;
    status = fi_mr_reg(endpoint_.domain(), memory.data, memory.bytes,
                       access == Access::kTarget ? FI_REMOTE_WRITE : FI_WRITE, 0, key, 0,
                       &registration, nullptr);
    if (status == 0) return LibfabricHandle<fid_mr>(registration);
    if (status != -FI_ENOKEY) break;
  }
  return libfabric_error(fmt::format("registering {} bytes", memory.bytes), status);
}

Result<Registration> LibfabricRegions::add(const MemoryBlock& memory, Access access) {
  if (memory.device != DeviceKind::kCpu) {
    return make_error(Code::kUnimplemented, "only CPU memory can be registered with libfabric");
  }
  Region region{.access = access, .data = static_cast<std::byte*>(memory.data)};
  Registration result{.id = {next_id_++}};
  if (access == Access::kTarget || endpoint_.has(FI_MR_LOCAL)) {
    region.registration = TANDEM_TRY(register_with_provider(memory, access));
  }
  if (access == Access::kTarget) {
    result.remote.key = fi_mr_key(region.registration.get());
    const bool by_address = endpoint_.has(FI_MR_VIRT_ADDR);
    result.remote.base = by_address ? reinterpret_cast<uint64_t>(memory.data) : 0;
  }
  regions_.emplace(result.id, std::move(region));
  return result;
}

LibfabricRegions::Closed LibfabricRegions::close(RailRegionId region) {
  auto closed = regions_.extract(region);
  TANDEM_CHECK(!closed.empty(), "a region is closed that does not exist");
  return {closed.mapped().access, std::move(closed.mapped().writer)};
}

LibfabricRegions::Source LibfabricRegions::source(RailRegionId region) const {
  const auto found = regions_.find(region);
  TANDEM_CHECK(found != regions_.end(), "a region is used that does not exist");
  fid_mr* registration = found->second.registration.get();
  return {found->second.data, registration == nullptr ? nullptr : fi_mr_desc(registration)};
}

void LibfabricRegions::set_writer(RailRegionId region, std::vector<std::byte> address) {
  const auto found = regions_.find(region);
  TANDEM_CHECK(found != regions_.end(), "a region is used that does not exist");
  found->second.writer = std::move(address);
}

}  // namespace tandem::transfer
