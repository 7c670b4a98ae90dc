#include "transfer/rail_event.h"

namespace tandem::transfer {

void tell(const RailEvent& event, RailEvents& events) {
  switch (event.kind) {
    case RailEvent::Kind::kPostEnded: {
      const bool is_delivered = event.outcome == RailOutcome::kDelivered;
      return events.post_ended(event.token, event.outcome, is_delivered ? nullptr : &event.error);
    }
    case RailEvent::Kind::kImmediate:
      return events.immediate_arrived(event.immediate);
    case RailEvent::Kind::kMessage:
      return events.message_arrived(event.message);
    case RailEvent::Kind::kRegionClosed:
      return events.region_closed(event.region);
    case RailEvent::Kind::kPeerClosed:
      return events.peer_closed(event.peer);
    case RailEvent::Kind::kRailFailed:
      return events.rail_failed(event.error);
  }
}

}  // namespace tandem::transfer
