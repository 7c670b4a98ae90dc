#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cluster/delivery/kv_receiver.h"
#include "cluster/delivery/sidecar_space.h"
#include "cluster/handoff/decoder.h"
#include "cluster/reservation_port.h"
#include "engine/ports.h"
#include "io/timers.h"
#include "kv/sidecar.h"

namespace tandem::cluster {

/// One decode group's side of hand-offs: turns its engine's reservations into hand-offs with
/// prefill workers and their outcome into news for the engine. Joins the protocol
/// (handoff::Decoder), the data plane (KvReceiver) and the engine's ports; decides nothing of what
/// they decide. Owner's thread only.
class DecodeGroup final : public ReservationEvents,
                          private handoff::DecoderPorts,
                          private KvReceiverEvents {
 public:
  struct Options {
    std::string name;  ///< for messages: "d0 rank 2"
    handoff::Decoder::Options protocol;
    int64_t deadline_us = 60'000'000;  ///< of a hand-off, and of the wait before it
    uint64_t link_seed = 0;            ///< of LinkIds; random per process
  };
  /// Sends to the prefill worker of the link. May lose it.
  using Send = std::function<void(const handoff::Message&)>;
  /// The protocol has given the link up, though its connection may live: only another one helps.
  using Break = std::function<void(handoff::LinkId)>;
  /// `import` is the engine's; `executor` and `import` outlive this.
  DecodeGroup(Options options, engine::KvImport& import, kv::KvLayout layout,
              std::vector<DataRank> ranks, io::Executor& executor, Send send, Break break_link);

  const kv::KvLayout& layout() const { return receiver_.layout(); }

  struct Peer {
    std::string prefill_worker;
    std::function<bool()> has_ended;  ///< its process; none when that cannot be known here
  };
  /// Opens the group's memory for a prefill worker; `done` gets the offer to send to it.
  void offer_link(Peer peer, LinkSource source, std::function<void(Result<LinkOffer>)> done);
  /// The prefill worker has taken the offer.
  void link_up(handoff::LinkId link);
  /// The offer was not taken, or the connection has ended.
  void link_lost(handoff::LinkId link);
  /// A lost link to this prefill worker is still being closed. Over tcp that cuts the connections
  /// of a new one, too, so the next one is offered behind it.
  bool is_closing_link(const std::string& prefill_worker) const;
  /// A hand-off can start.
  bool has_link() const;
  void on_message(const handoff::Message& message);

  // Requests.
  struct Wish {
    std::string prefill_worker;  ///< that is to compute the prompt; empty: any
    std::string cache_salt;
  };
  /// Before the engine gets the request; until forget().
  void expect(RequestId request, Wish wish);
  /// The request has ended.
  void forget(RequestId request);

  void on_reserved(Reservation reservation) override;
  void on_abandoned(engine::ImportId import) override;

  uint32_t handoffs_count() const { return protocol_.handoffs_count(); }
  uint32_t quarantined_pages() const { return protocol_.quarantined_pages(); }
  const handoff::Decoder::Counters& counters() const { return protocol_.counters(); }

 private:
  enum class LinkState { kOffered, kUp, kLost };
  struct Link {
    Peer peer;
    kv::KvLayout layout;  ///< of the source
    LinkState state = LinkState::kOffered;
  };
  /// One hand-off's pages, from its start until nothing can land in them.
  struct Delivery {
    handoff::LinkId link;
    engine::ImportId import;
    RequestId request;
    std::shared_ptr<const kv::TransferPlan> plan;
    std::vector<PageId> pages;
    uint64_t sidecar_first = 0;
    uint32_t unarmed_ranks = 0;  ///< Start waits for them
    std::optional<handoff::Message> waiting_start;
    uint32_t unproved_ranks = 0;  ///< verdicts that are to come
    bool is_released = false;     ///< by the protocol
  };
  struct Request {
    Wish wish;
    uint32_t attempts = 0;  ///< hand-offs that failed
  };

  // handoff::DecoderPorts
  void send(const handoff::Message& message) override;
  void arm(handoff::Immediate immediate, uint32_t rank, uint32_t writes) override;
  void drop(handoff::Immediate immediate, uint32_t rank) override;
  void verify(handoff::Key key) override;
  void admit(RequestId request, handoff::Key key) override;
  void fail(RequestId request, Error error, handoff::Policy next) override;
  void release(handoff::Key key) override;
  void fence(handoff::LinkId link) override;
  // KvReceiverEvents
  void on_arrived(handoff::Immediate immediate, uint32_t rank) override;
  void on_verdict(handoff::Key key, uint32_t rank, Result<void> verdict) override;
  void on_fenced(handoff::LinkId link) override;

  void start_waiting();
  void expire(engine::ImportId import);
  void refuse(const Reservation& reservation, const Error& error);
  Result<bool> start(const Reservation& reservation);
  std::optional<handoff::LinkId> choose_link(const Request& request) const;
  void on_armed(handoff::Immediate immediate, const Result<void>& armed);
  void end_if_released(handoff::Key key);
  void break_links();
  void watch_end(handoff::LinkId link);
  void rearm();
  int64_t now_us() const;

  const Options options_;
  engine::KvImport& import_;
  io::Timers timers_;
  const Send send_message_;
  const Break break_link_;
  handoff::Decoder protocol_;
  SidecarSpace sidecars_;
  KvReceiver receiver_;
  std::map<handoff::LinkId, Link> links_;
  std::map<handoff::Key, Delivery> deliveries_;
  std::optional<Delivery> starting_;               ///< whose key its first message tells
  std::deque<Reservation> waiting_;                ///< for a stretch of sidecars, in turn
  std::map<RequestId, engine::ImportId> imports_;  ///< that the engine waits for
  std::map<uint64_t, Request> requests_;
  std::mt19937_64 link_ids_;
  std::optional<io::TimerId> timer_;
};

}  // namespace tandem::cluster
