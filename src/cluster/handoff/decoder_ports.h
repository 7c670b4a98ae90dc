#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "cluster/handoff/key.h"
#include "cluster/handoff/message.h"

namespace tandem::cluster::handoff {

/// What follows a failed hand-off.
enum class Policy {
  kFail,       ///< the request ends with the error
  kRecompute,  ///< the decoder computes the prompt itself, into other pages
  kRetry,      ///< another hand-off, with other pages, on any link that is up
};

/// What the decoder's state machine does to the world. Calls return at once and never call back
/// into the machine; their results come as events.
class DecoderPorts {
 public:
  virtual ~DecoderPorts() = default;
  /// May be lost.
  virtual void send(const Message& message) = 0;
  /// Counts writes with this immediate at a target rank, from 0; Decoder::on_arrived at `writes`.
  virtual void arm(Immediate immediate, uint32_t rank, uint32_t writes) = 0;
  /// Counts it no more; later ones are strangers.
  virtual void drop(Immediate immediate, uint32_t rank) = 0;
  /// Compares the pages with their sidecars on every target rank; Decoder::on_verdict per rank.
  /// `release` may come first when the request was cancelled.
  virtual void verify(Key key) = 0;
  /// The pages hold the prompt's K and V. The engine gets a hold of its own on them.
  virtual void admit(RequestId request, Key key) = 0;
  /// The request is not admitted. `next` is kFail when policy's attempts are used up.
  virtual void fail(RequestId request, Error error, Policy next) = 0;
  /// Ends the hand-off's hold on its pages and their sidecars: no write can land there any more.
  /// After admit() or fail(), or the cancellation.
  virtual void release(Key key) = 0;
  /// Closes the registration that was made for this link, so that later writes are refused;
  /// Decoder::on_fenced when done.
  virtual void fence(LinkId link) = 0;
};

}  // namespace tandem::cluster::handoff
