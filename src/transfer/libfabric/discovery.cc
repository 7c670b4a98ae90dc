#include "transfer/libfabric/discovery.h"

#include <fmt/format.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstring>
#include <set>

namespace tandem::transfer {
namespace {

constexpr uint32_t kApiVersion = FI_VERSION(1, 17);

/// libfabric's names of providers with connection-less endpoints. A layer (ofi_rxm) makes such
/// endpoints of connections; it is named here so that no other layer is taken for it.
std::string full_name(const std::string& provider) {
  return provider == "tcp" || provider == "verbs" ? provider + ";ofi_rxm" : provider;
}

/// What an offer must have. An empty provider stands for all.
LibfabricInfo hints_for(const std::string& provider) {
  LibfabricInfo hints(fi_allocinfo());
  if (hints == nullptr) return hints;
  hints->caps = FI_MSG | FI_SEND | FI_RECV | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  // Some providers keep words of their own in the context of an operation; ours have room for it.
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->cq_data_size = sizeof(uint32_t);
  // Freed together with the hints.
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  return hints;
}

/// All offers of a provider, from one address of this host or from any; null when there are none.
LibfabricInfo offers_of(const std::string& provider, const char* address = nullptr) {
  const LibfabricInfo hints = hints_for(provider);
  fi_info* offers = nullptr;
  if (hints == nullptr) return nullptr;
  const uint64_t flags = address == nullptr ? 0 : FI_SOURCE | FI_NUMERICHOST;
  if (fi_getinfo(kApiVersion, address, nullptr, flags, hints.get(), &offers) != 0) return nullptr;
  return LibfabricInfo(offers);
}

std::string describe(const fi_info& offer) {
  return fmt::format("{} on {}", offer.fabric_attr->prov_name, offer.domain_attr->name);
}

/// "shm on shm, tcp;ofi_rxm on eth0", each once.
std::string describe_all(const fi_info* offers) {
  std::set<std::string> names;
  for (; offers != nullptr; offers = offers->next) names.insert(describe(*offers));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "nothing" : text;
}

}  // namespace

Result<LibfabricInfo> find_libfabric(const LibfabricOptions& options) {
  const std::string provider = full_name(options.provider);
  LibfabricInfo offers = offers_of(provider);
  if (offers == nullptr) {
    return make_error(
        Code::kNotFound,
        fmt::format("libfabric has no provider \"{}\" here that can write to a peer's "
                    "memory; it has {}; choose one of these, or install the driver",
                    options.provider, describe_all(offers_of("").get())));
  }
  const fi_info* chosen = offers.get();
  LibfabricInfo by_address;
  if (!options.interface.empty()) {
    while (chosen != nullptr && chosen->domain_attr->name != options.interface) {
      chosen = chosen->next;
    }
    if (chosen == nullptr) {
      by_address = offers_of(provider, options.interface.c_str());
      chosen = by_address.get();
    }
  }
  if (chosen == nullptr) {
    return make_error(
        Code::kNotFound,
        fmt::format("\"{}\" is neither an interface nor an address of this host that provider {} "
                    "can use; it can use {}",
                    options.interface, options.provider, describe_all(offers.get())));
  }
  LibfabricInfo copy(fi_dupinfo(chosen));
  if (copy == nullptr) return libfabric_error("fi_dupinfo", -FI_ENOMEM);
  return copy;
}

}  // namespace tandem::transfer
