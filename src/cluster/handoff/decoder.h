#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cluster/handoff/decoder_ports.h"
#include "cluster/handoff/key.h"
#include "cluster/handoff/message.h"
#include "cluster/handoff/slot_table.h"

namespace tandem::cluster::handoff {

/// The decoder's side of the protocol in docs/handoff.md, for one decode group: a pure function of
/// events and the time that comes with them. Pages are held by a hand-off from start to `release`,
/// independent of any hold of the engine.
///
/// Owns the bookkeeping of hand-offs and links; borrows the ports. One thread.
class Decoder {
 public:
  struct Options {
    int64_t heartbeat_us = 250'000;
    int64_t silence_us = 2'000'000;
    int64_t resend_us = 200'000;
    int64_t ask_us = 1'000'000;
    int64_t arrival_us = 500'000;  ///< from Drained to the last count
    int64_t confirm_us = 5'000'000;
    Policy policy = Policy::kFail;
    uint32_t attempts_max = 3;  ///< hand-offs of a request under kRetry
    uint32_t quarantined_pages_max = 1 << 20;
    SlotTable::Options slots;
  };
  Decoder(const Options& options, DecoderPorts& ports);

  struct Link {
    std::string name;  ///< of the prefill worker, for errors
    bool can_fence = true;
  };
  struct Handoff {
    RequestId request;
    LinkId link;
    uint32_t attempt = 0;     ///< hand-offs of this request that failed before
    int64_t deadline_us = 0;  ///< on the clock of now_us
    Start start;              ///< time_left_us is filled in
  };

  /// Begins a hand-off for a request that is in none. The pages are held already. An empty range
  /// (first_position = n - 1) is admitted at once, under no key. kUnavailable: the link is not up;
  /// kResourceExhausted: no slot, or too many pages in quarantine. Then nothing has happened.
  Result<std::optional<Key>> start(Handoff handoff, int64_t now_us);
  /// The request has ended otherwise. Unknown ones are ignored.
  void cancel(RequestId request, int64_t now_us);

  void on_message(const Message& message, int64_t now_us);
  void on_arrived(Immediate immediate, uint32_t rank);
  void on_verdict(Key key, uint32_t rank, Result<void> verdict, int64_t now_us);
  void on_link_up(LinkId id, Link link, int64_t now_us);
  /// The connection ended or the peer left. Its process may live.
  void on_link_lost(LinkId link, int64_t now_us);
  /// Implies on_link_lost. Without a fence the process's end is the end of its writes.
  void on_process_gone(LinkId link, int64_t now_us);
  void on_fenced(LinkId link, int64_t now_us);

  void on_timer(int64_t now_us);
  /// When on_timer has something to do; none when nothing is alive.
  std::optional<int64_t> next_timer_us() const;

  bool is_up(LinkId link) const;
  uint32_t handoffs_count() const { return static_cast<uint32_t>(entries_.size()); }
  /// Pages of hand-offs that are over but for the writes that may still land.
  uint32_t quarantined_pages() const { return quarantined_pages_; }

  struct Counters {
    uint64_t started = 0;
    uint64_t admitted = 0;
    uint64_t failed = 0;
    uint64_t cancelled = 0;
    uint64_t not_proved = 0;  ///< of those failed, with a full count
    uint64_t fences = 0;
    uint64_t unknown_links = 0;     ///< messages of links that are not known
    uint64_t unknown_handoffs = 0;  ///< messages and arrivals of hand-offs that are over
  };
  const Counters& counters() const { return counters_; }

 private:
  enum class State : uint8_t { kAsked, kAccepted, kVerifying, kClosing };
  struct Entry {
    Handoff handoff;
    std::string peer;
    State state = State::kAsked;
    std::vector<bool> arrived;  // [target ranks]
    std::vector<bool> proved;   // [target ranks]
    bool is_drained = false;
    bool is_quarantined = false;
    int64_t resend_at_us = 0;   // of Start, Ask or Cancel
    int64_t expires_at_us = 0;  // deadline, arrival or confirm, by state
  };
  using Entries = std::map<Key, Entry>;
  struct LinkEntry {
    Link link;
    bool is_up = true;
    int64_t heard_us = 0;
    int64_t heartbeat_at_us = 0;
  };

  bool is_waiting(const Entry& entry) const {
    return entry.state == State::kAsked || entry.state == State::kAccepted;
  }
  void send(const Entry& entry, Key key, decltype(Message::body) body);
  void send_start(Entry& entry, Key key, int64_t now_us);
  void on_drained(Key key, Entry& entry, const Drained& drained, int64_t now_us);
  void fail(Key key, Entry& entry, Code code, const std::string& why, int64_t now_us);
  void close(Key key, Entry& entry, bool is_admitted, int64_t now_us);
  void release_if_drained(Key key);
  void release(Entries::iterator entry);
  std::vector<Key> keys_of(LinkId link) const;
  void release_all_of(LinkId link);
  void lose(LinkId link, const std::string& why, int64_t now_us);
  void on_entry_timer(Key key, int64_t now_us);

  Options options_;
  DecoderPorts& ports_;
  SlotTable slots_;
  Entries entries_;
  std::map<uint64_t, Key> active_;  // by request: not in Closing
  std::map<uint64_t, LinkEntry> links_;
  uint32_t quarantined_pages_ = 0;
  Counters counters_;
};

}  // namespace tandem::cluster::handoff
