#include "bench/bare_fabric.h"

#include <rdma/fi_rma.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tandem::bench {
namespace {

using Clock = std::chrono::steady_clock;
using transfer::libfabric_error;

io::Deadline soon() {
  return Clock::now() + std::chrono::seconds(60);
}

/// What the sides tell each other once.
struct Greeting {
  uint64_t name_bytes = 0;
  std::byte name[256] = {};
  uint64_t base = 0;
  uint64_t key = 0;
};

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

Result<std::unique_ptr<BareFabric>> BareFabric::meet(const Options& options, io::Socket& control) {
  auto endpoint = TANDEM_TRY(transfer::LibfabricEndpoint::open(
      {.network = options.network,
       .completions_max = 4 * options.writes_max,
       .operation_flags = FI_COMPLETION | (options.confirms_delivery ? FI_DELIVERY_COMPLETE : 0)}));
  std::unique_ptr<BareFabric> result(new BareFabric(options, control, std::move(endpoint)));
  TANDEM_TRY(result->exchange());
  return result;
}

Result<void> BareFabric::exchange() {
  region_.assign(options_.region_bytes, std::byte{1});
  constexpr uint64_t kKey = 1;  // of two processes that trust each other
  fid_mr* registration = nullptr;
  if (const int status = fi_mr_reg(endpoint_.domain(), region_.data(), region_.size(),
                                   FI_WRITE | FI_REMOTE_WRITE, 0, kKey, 0, &registration, nullptr);
      status != 0) {
    return libfabric_error("fi_mr_reg", status);
  }
  registration_.reset(registration);
  const std::vector<std::byte> name = TANDEM_TRY(endpoint_.name());
  Greeting greeting{.name_bytes = name.size(), .key = fi_mr_key(registration)};
  std::ranges::copy(name, greeting.name);
  if (endpoint_.has(FI_MR_VIRT_ADDR)) greeting.base = reinterpret_cast<uint64_t>(region_.data());
  TANDEM_TRY(control_.send(bytes_of(greeting), soon()));
  TANDEM_TRY(control_.receive(bytes_of(greeting), soon()));
  peer_ = TANDEM_TRY(endpoint_.add_peer(std::span(greeting.name).first(greeting.name_bytes)));
  peer_base_ = greeting.base;
  peer_key_ = greeting.key;
  return {};
}

Result<uint64_t> BareFabric::poll() {
  fi_cq_data_entry entries[16];
  const ssize_t count = fi_cq_read(endpoint_.completions(), entries, std::size(entries));
  if (count > 0) return static_cast<uint64_t>(count);
  if (count != -FI_EAGAIN) return libfabric_error("fi_cq_read", count);
  ::sched_yield();
  return uint64_t{0};
}

Result<bool> BareFabric::post(uint64_t number, uint64_t bytes) {
  const uint64_t slots = region_.size() / std::max<uint64_t>(bytes, 1);
  const uint64_t offset = number % slots * bytes;
  const ssize_t status = fi_writedata(endpoint_.endpoint(), region_.data() + offset, bytes,
                                      fi_mr_desc(registration_.get()), 1, peer_,
                                      peer_base_ + offset, peer_key_, nullptr);
  if (status == 0) return true;
  if (status == -FI_EAGAIN) return false;
  return libfabric_error("fi_writedata", status);
}

Result<void> BareFabric::await_arrivals() {
  std::byte counted{};
  return control_.receive(std::span(&counted, 1), soon());
}

Result<double> BareFabric::write(const Round& round) {
  TANDEM_CHECK(round.bytes <= region_.size());
  const auto start = Clock::now();
  uint64_t posted = 0;
  for (uint64_t complete = 0; complete < round.writes;) {
    while (posted < round.writes && posted - complete < options_.writes_max &&
           TANDEM_TRY(post(posted, round.bytes))) {
      ++posted;
    }
    complete += TANDEM_TRY(poll());
  }
  TANDEM_TRY(await_arrivals());
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<std::vector<double>> BareFabric::write_singly(const Round& round) {
  TANDEM_CHECK(round.bytes <= region_.size());
  std::vector<double> latencies_us;
  latencies_us.reserve(round.writes);
  for (uint64_t number = 0; number < round.writes; ++number) {
    const auto start = Clock::now();
    while (!TANDEM_TRY(post(number, round.bytes))) TANDEM_TRY(poll());
    while (TANDEM_TRY(poll()) == 0) {
    }
    latencies_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  TANDEM_TRY(await_arrivals());
  return latencies_us;
}

Result<void> BareFabric::count(uint64_t writes) {
  for (uint64_t arrived = 0; arrived < writes;) arrived += TANDEM_TRY(poll());
  std::byte counted{1};
  return control_.send(std::span(&counted, 1), soon());
}

}  // namespace tandem::bench
