#include "transfer/libfabric/endpoint.h"

#include <rdma/fi_cm.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "io/signals.h"
#include "transfer/libfabric/prepare.h"

namespace tandem::transfer {
namespace {

/// Turns one call that opens something into a handle of it.
template <typename T, typename Open>
Result<LibfabricHandle<T>> opened(const char* call, Open open) {
  T* object = nullptr;
  if (const int status = open(&object); status != 0) return libfabric_error(call, status);
  return LibfabricHandle<T>(object);
}

Result<void> succeeded(const char* call, int status) {
  return status == 0 ? Result<void>() : libfabric_error(call, status);
}

/// Whether libfabric was told so before it first ran: it reads its settings once.
bool removal_cuts_connections() {
  fi_param* settings = nullptr;
  int count = 0;
  if (fi_getparams(&settings, &count) != 0) return false;
  const bool is_set = std::any_of(settings, settings + count, [](const fi_param& setting) {
    return std::string_view(setting.name) == kCutsConnections && setting.value != nullptr &&
           std::string_view(setting.value) == "1";
  });
  fi_freeparams(settings);
  return is_set;
}

}  // namespace

Result<LibfabricEndpoint> LibfabricEndpoint::open(const Options& options) {
  // The shm provider takes signals for itself when libfabric first runs.
  const io::KeptSignals kept;
  LibfabricEndpoint result;
  result.info_ = TANDEM_TRY(find_libfabric(options.network));
  fi_info* info = result.info_.get();
  info->tx_attr->op_flags = options.operation_flags;
  const std::string_view provider = info->fabric_attr->prov_name;
  result.has_connections_ = provider.find("ofi_rxm") != std::string_view::npos;
  result.cuts_connections_ = result.has_connections_ && removal_cuts_connections();
  result.confirms_empty_writes_ = provider != "shm";
  result.batches_writes_ =
      result.has_connections_ && provider.find("verbs") == std::string_view::npos;
  result.fabric_ = TANDEM_TRY(opened<fid_fabric>(
      "fi_fabric", [&](auto** out) { return fi_fabric(info->fabric_attr, out, nullptr); }));
  result.domain_ = TANDEM_TRY(opened<fid_domain>("fi_domain", [&](auto** out) {
    return fi_domain(result.fabric_.get(), info, out, nullptr);
  }));
  fi_av_attr addresses{.type = FI_AV_TABLE};
  result.addresses_ = TANDEM_TRY(opened<fid_av>("fi_av_open", [&](auto** out) {
    return fi_av_open(result.domain_.get(), &addresses, out, nullptr);
  }));
  fi_cq_attr queue{
      .size = options.completions_max, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
  const auto open_queue = [&](auto** out) {
    return fi_cq_open(result.domain_.get(), &queue, out, nullptr);
  };
  auto completions = opened<fid_cq>("fi_cq_open", open_queue);
  if (!completions.ok()) {
    queue.wait_obj = FI_WAIT_NONE;  // shm: nobody can be woken, so it is polled
    completions = opened<fid_cq>("fi_cq_open", open_queue);
  }
  result.completions_ = TANDEM_TRY(std::move(completions));
  if (queue.wait_obj == FI_WAIT_FD) {
    TANDEM_TRY(succeeded("fi_control(FI_GETWAIT)",
                         fi_control(&result.completions_->fid, FI_GETWAIT, &result.descriptor_)));
  }
  result.endpoint_ = TANDEM_TRY(opened<fid_ep>("fi_endpoint", [&](auto** out) {
    return fi_endpoint(result.domain_.get(), info, out, nullptr);
  }));
  fid_ep* endpoint = result.endpoint_.get();
  TANDEM_TRY(succeeded("fi_ep_bind(av)", fi_ep_bind(endpoint, &result.addresses_->fid, 0)));
  TANDEM_TRY(
      succeeded("fi_ep_bind(cq)", fi_ep_bind(endpoint, &result.completions_->fid,
                                             FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)));
  TANDEM_TRY(succeeded("fi_enable", fi_enable(endpoint)));
  return result;
}

Result<std::vector<std::byte>> LibfabricEndpoint::name() const {
  std::vector<std::byte> name(256);
  size_t bytes = name.size();
  TANDEM_TRY(succeeded("fi_getname", fi_getname(&endpoint_->fid, name.data(), &bytes)));
  name.resize(bytes);
  return name;
}

Result<fi_addr_t> LibfabricEndpoint::add_peer(std::span<const std::byte> name) {
  // libfabric trusts the length of what it reads: an address as long as our own, or a text.
  const bool is_text = info_->addr_format == FI_ADDR_STR;
  const bool is_whole = is_text ? !name.empty() && name.back() == std::byte{}
                                : name.size() == TANDEM_TRY(this->name()).size();
  fi_addr_t peer = FI_ADDR_UNSPEC;
  if (is_whole && fi_av_insert(addresses_.get(), name.data(), 1, &peer, 0, nullptr) == 1) {
    return peer;
  }
  return make_error(Code::kInvalidArgument,
                    std::string("the peer's name is no address of provider ") +
                        info_->fabric_attr->prov_name + "; do both sides use the same provider?");
}

void LibfabricEndpoint::remove_peer(fi_addr_t peer) {
  // It fails only for a peer that is not there.
  TANDEM_CHECK(fi_av_remove(addresses_.get(), &peer, 1, 0) == 0, "a peer is removed twice");
}

std::string LibfabricEndpoint::describe(std::span<const std::byte> name) const {
  std::array<char, 256> text{};
  size_t bytes = text.size();
  fi_av_straddr(addresses_.get(), name.data(), text.data(), &bytes);
  text.back() = 0;
  return text.data();
}

}  // namespace tandem::transfer
