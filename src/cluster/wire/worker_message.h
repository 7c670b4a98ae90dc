#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cluster/delivery/link_offer.h"
#include "engine/request.h"
#include "engine/status.h"
#include "io/process.h"

namespace tandem::cluster {

// What routers and workers say to each other over an rpc::Channel. On one connection messages stay
// in order; one that ends takes along what it carried. Between processes of one build, which Hello
// sees to.

/// Router to worker, first on every connection: report to me from now on.
struct Subscribe {
  bool operator==(const Subscribe&) const = default;
};

/// Router to decode worker. Its events come back on the same connection; if that ends, the request
/// is cancelled.
struct Submit {
  uint64_t number = 0;  ///< of this router for this worker, counted from 1
  uint32_t group = 0;   ///< decode group (data-parallel rank) that serves it
  /// Who computes the prompt; empty: whoever can, or the group itself.
  std::string prefill_worker;
  engine::Request request;  ///< ids are unique among the requests of a connection
};

/// Router to decode worker: end it. Unknown ids are ignored.
struct CancelRequest {
  RequestId request;
};

/// Decode worker to router.
struct Events {
  std::vector<engine::Event> events;
};

/// Worker to router, several times a second, and at once when its readiness changes.
struct Report {
  /// Number of the last Submit of this router that the figures include; 0: none.
  uint64_t requests_included = 0;
  uint64_t queued_tokens = 0;  ///< of a prefill worker: prompts to compute
  uint32_t page_tokens = 0;
  uint32_t model_length_max = 0;
  bool draining = false;
  std::vector<engine::EngineStatus> groups;  ///< its waits do not travel
};

/// Decode worker to router: the handshake with this prefill worker was refused; without a reason,
/// that it is not any more.
struct Mismatched {
  std::string prefill_worker;
  std::string reason;
};

/// Either worker to the other: the bytes of a handoff::Message.
struct HandoffBytes {
  std::string bytes;
};

using WorkerMessage =
    std::variant<Subscribe, Submit, CancelRequest, Events, Report, Mismatched, HandoffBytes>;

// Calls of a decode worker to a prefill worker: the handshake.

/// What must be the same on both sides, and what may differ.
struct Hello {
  std::string build;        ///< version of the program
  std::string fingerprint;  ///< of config.json and weights
  std::string compute;      ///< --dtype and matrix path: other ones compute other bits
  int32_t vocabulary_size = 0;
  uint32_t model_length_max = 0;
  kv::KvLayout layout;
};

/// Answer to Hello.
struct Welcome {
  LinkSource source;
  uint64_t generation = 0;  ///< of the prefill worker's process
  io::ProcessName process;  ///< for those on its host; no boot: it does not know
};

/// kFailedPrecondition names all fields that differ and must not, with both values: build, model,
/// compute, vocabulary, and what kv::layout_mismatches() finds.
Result<void> check_match(const Hello& decode, const Hello& prefill);

/// The second call opens a link; its answer is empty.
using WorkerCall = std::variant<Hello, LinkOffer>;

struct WireLimits {
  uint32_t tokens_max = 1 << 20;      ///< of a prompt
  int32_t vocabulary_size = 1 << 20;  ///< token ids are below
  uint32_t list_max = 4096;           ///< of any other list
  uint32_t text_bytes_max = 8192;     ///< reasons and errors that are longer are cut by encode()
};

/// Little-endian fields in the order above, lists with a 32-bit count. decode*() take any bytes:
/// kDataLoss unless they are exactly one such value within the limits; they allocate in proportion
/// to `bytes`. What is returned has valid layouts with as many ranks as they say, finite sampling
/// parameters, and an error in exactly those events that end with one. HandoffBytes are not read.
std::string encode(const WorkerMessage& message, const WireLimits& limits = {});
Result<WorkerMessage> decode_message(std::string_view bytes, const WireLimits& limits);
std::string encode(const WorkerCall& call);
Result<WorkerCall> decode_call(std::string_view bytes, const WireLimits& limits);
std::string encode(const Welcome& welcome);
Result<Welcome> decode_welcome(std::string_view bytes, const WireLimits& limits);

}  // namespace tandem::cluster
