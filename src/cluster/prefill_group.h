#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/delivery/kv_sender.h"
#include "cluster/event_port.h"
#include "cluster/export_port.h"
#include "cluster/handoff/prefiller.h"
#include "engine/ports.h"
#include "engine/request.h"
#include "io/timers.h"

namespace tandem::cluster {

/// A prefill worker's side of hand-offs: gives its engine the prompts that decode groups ask for,
/// and sends K and V as the layers of each step are done. Joins the protocol (handoff::Prefiller),
/// the data plane (KvSender) and the engine's ports. Owner's thread only.
class PrefillGroup final : public ExportEvents,
                           private handoff::PrefillerPorts,
                           private KvSenderEvents {
 public:
  /// Sends to the decode group of the link. May lose it.
  using Send = std::function<void(const handoff::Message&)>;
  /// The decode worker of this link must hear that it is lost: writes may still land.
  using Break = std::function<void(handoff::LinkId, const Error&)>;
  struct Engine {
    engine::EngineClient* client = nullptr;
    engine::KvExport* exports = nullptr;
    EventPort* events = nullptr;
  };
  /// The engine is used for nothing else; what it points to and `executor` outlive this. `protocol`
  /// gets its ranks and layers from the layout.
  PrefillGroup(handoff::Prefiller::Options protocol, Engine engine, kv::KvLayout layout,
               std::vector<DataRank> ranks, io::Executor& executor, Send send, Break break_link);
  ~PrefillGroup() override;

  /// What a decode worker needs to know before it makes an offer.
  const LinkSource& source() const { return sender_.source(); }
  /// Prompt tokens that are asked for and not computed.
  uint64_t queued_tokens() const;

  /// `done` says whether the decode group may start hand-offs.
  void open_link(LinkOffer offer, std::function<void(Result<void>)> done);
  void link_lost(handoff::LinkId link);
  void on_message(const handoff::Message& message);

  void on_admitted(RequestId request, uint32_t cached_tokens, std::vector<PageId> pages) override;
  void on_scheduled(uint64_t step, std::vector<ScheduledExport> parts) override;
  void on_layer_progress(int rank, uint64_t step, uint32_t layer) override;

  uint32_t handoffs_count() const { return protocol_.handoffs_count(); }
  const handoff::Prefiller::Counters& counters() const { return protocol_.counters(); }

 private:
  struct Link {
    kv::KvLayout layout;  ///< of the target
    uint64_t sidecar_records = 0;
    bool is_lost = false;
    uint32_t exports = 0;  ///< not released
  };
  /// A prompt at the engine, from begin() until both the protocol and the engine are done with it.
  struct Export {
    handoff::LinkedKey handoff;
    uint32_t tokens_end = 0;       ///< n - 1
    uint32_t tokens_computed = 0;  ///< by steps that were scheduled
    bool is_admitted = false;      ///< its pages are leased from its end on
    bool is_finished = false;      ///< the engine has told its end
    bool is_released = false;      ///< the protocol needs its pages no more
  };
  struct Step {
    uint64_t number = 0;
    std::vector<std::pair<RequestId, uint32_t>> ends;  ///< positions computed after it
    std::vector<bool> is_done;                         ///< [ranks]
  };

  // handoff::PrefillerPorts
  void send(const handoff::Message& message) override;
  Result<void> begin(handoff::LinkedKey handoff, const handoff::Start& start) override;
  Submitted submit(handoff::LinkedKey handoff, const Slices& slices) override;
  void stop(handoff::LinkedKey handoff) override;
  void release(handoff::LinkedKey handoff) override;
  // KvSenderEvents
  void on_delivered(handoff::LinkedKey handoff, uint32_t writes) override;
  void on_write_failed(handoff::LinkedKey handoff, uint32_t writes, Error error) override;
  void on_link_broken(handoff::LinkId link, Error error) override;

  Result<kv::TransferPlan> plan(const Link& link, const handoff::Start& start) const;
  void on_events(std::vector<engine::Event> events);
  void computed(const Export& entry, uint32_t rank, uint32_t layer, uint32_t tokens_end);
  void end_if_over(RequestId request);
  void close_if_over(handoff::LinkId link);
  void rearm();
  int64_t now_us() const;

  const Engine engine_;
  const kv::KvLayout layout_;
  io::Timers timers_;
  const Send send_message_;
  const Break break_link_;
  handoff::Prefiller protocol_;
  KvSender sender_;
  std::map<handoff::LinkId, Link> links_;
  std::map<RequestId, Export> exports_;
  std::map<handoff::LinkedKey, RequestId> requests_;  ///< of exports that are not released
  std::deque<Step> steps_;                            ///< that some rank has not done
  uint64_t requests_made_ = 0;
  std::optional<io::TimerId> timer_;
};

}  // namespace tandem::cluster
