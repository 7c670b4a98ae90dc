#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cluster/handoff/key.h"
#include "cluster/handoff/message.h"

namespace tandem::cluster::handoff {

/// One hand-off among those of all links.
struct LinkedKey {
  LinkId link;
  Key key;
  auto operator<=>(const LinkedKey&) const = default;
};

/// What the prefiller's state machine does to the world. Calls return at once and never call back
/// into the machine; their results come as events.
class PrefillerPorts {
 public:
  virtual ~PrefillerPorts() = default;
  /// May be lost.
  virtual void send(const Message& message) = 0;
  /// The engine takes the prompt, to compute [0, n - 1); the pages of what it computes and finds
  /// stay held until `release`. What its cache has is told by on_computed once those pages are
  /// held: a count told now would be void when they are evicted before that. An error refuses the
  /// hand-off: no room, an unknown layout, other counts than Start has.
  virtual Result<void> begin(LinkedKey handoff, const Start& start) = 0;

  /// Those slices of a source rank's layer whose last needed token is in [tokens_from, tokens_end);
  /// with the last token also the layer's sidecar records.
  struct Slices {
    uint32_t rank = 0;
    uint32_t layer = 0;
    uint32_t tokens_from = 0;
    uint32_t tokens_end = 0;
  };
  struct Submitted {
    uint32_t writes = 0;         ///< each ends in on_delivered or on_write_failed
    std::optional<Error> error;  ///< why not all were submitted
  };
  virtual Submitted submit(LinkedKey handoff, const Slices& slices) = 0;
  /// The engine computes no more of it.
  virtual void stop(LinkedKey handoff) = 0;
  /// No write reads the source pages any more.
  virtual void release(LinkedKey handoff) = 0;
};

/// The prefiller's side of the protocol in docs/handoff.md, for one prefill worker with all its
/// source ranks: a pure function of events and the time that comes with them.
///
/// Owns the bookkeeping of hand-offs and links; borrows the ports. One thread.
class Prefiller {
 public:
  struct Options {
    uint32_t source_ranks = 1;
    uint32_t layers = 1;
    int64_t heartbeat_us = 250'000;
    int64_t silence_us = 2'000'000;
    int64_t resend_us = 200'000;
  };
  Prefiller(const Options& options, PrefillerPorts& ports);

  void on_message(const Message& message, int64_t now_us);
  /// The rank has K and V of tokens [0, tokens_end) in this layer and in all before it. What does
  /// not exceed an earlier call, and hand-offs that are over, are ignored.
  void on_computed(LinkedKey handoff, uint32_t rank, uint32_t layer, uint32_t tokens_end,
                   int64_t now_us);
  void on_compute_failed(LinkedKey handoff, Error error, int64_t now_us);
  void on_delivered(LinkedKey handoff, uint32_t writes);
  void on_write_failed(LinkedKey handoff, uint32_t writes, Error error, int64_t now_us);
  /// Before the decoder knows the link.
  void on_link_up(LinkId link, int64_t now_us);
  /// The connection ended or the decoder is gone. What is under way is drained, and nothing starts.
  /// The link is forgotten, but for the answer to Cancel: a decoder that lives and cannot fence
  /// waits for it.
  void on_link_lost(LinkId link);

  void on_timer(int64_t now_us);
  /// When on_timer has something to do; none when nothing is alive.
  std::optional<int64_t> next_timer_us() const;

  uint32_t handoffs_count() const { return static_cast<uint32_t>(entries_.size()); }

  struct Counters {
    uint64_t begun = 0;
    uint64_t refused = 0;
    uint64_t completed = 0;
    uint64_t failed = 0;
    uint64_t cancelled = 0;
    uint64_t expired = 0;        ///< of those failed: the decoder's time was over
    uint64_t stale_starts = 0;   ///< behind their own cancel or end
    uint64_t unknown_links = 0;  ///< messages of links that are not known
  };
  const Counters& counters() const { return counters_; }

 private:
  enum class State : uint8_t { kSending, kFailed, kStopping };
  struct Entry {
    State state = State::kSending;
    std::vector<uint32_t> sent_end;  // [source_ranks * layers] tokens whose slices are submitted
    uint32_t tokens_end = 0;         // n - 1
    uint32_t unfinished = 0;         // of sent_end, below tokens_end
    uint64_t outstanding = 0;        // writes
    std::optional<Cause> cause;      // why it failed
    bool is_released = false;
    int64_t deadline_us = 0;
    int64_t resend_at_us = 0;
  };
  using Entries = std::map<LinkedKey, Entry>;
  struct LinkEntry {
    std::map<uint16_t, uint64_t> seen;  // largest epoch of a slot that was started or cancelled
    int64_t heard_us = 0;
    int64_t heartbeat_at_us = 0;
    bool is_silent = false;
  };

  void send(LinkedKey handoff, decltype(Message::body) body);
  void on_start(LinkedKey handoff, const Start& start, LinkEntry& link, int64_t now_us);
  void on_cancel(LinkedKey handoff, LinkEntry& link);
  void on_ask(LinkedKey handoff, const LinkEntry& link, int64_t now_us);
  void tell_state(Entries::iterator entry, int64_t now_us);
  bool note_as_seen(LinkEntry& link, Key key);  // false when it was
  void submit_up_to(Entries::iterator entry, uint32_t rank, uint32_t layer, uint32_t tokens_end,
                    int64_t now_us);
  void fail(Entries::iterator entry, Cause cause, int64_t now_us);
  void tell_failure(Entries::iterator entry, int64_t now_us);
  void stop(Entries::iterator entry);
  void abandon_all_of(LinkId link);
  /// What follows when nothing is outstanding.
  void settle(Entries::iterator entry);
  void release(Entries::iterator entry);

  Options options_;
  PrefillerPorts& ports_;
  Entries entries_;
  std::map<uint64_t, LinkEntry> links_;
  Counters counters_;
};

}  // namespace tandem::cluster::handoff
