#include "rpc/etcd_membership.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "io/timers.h"
#include "rpc/grpc/credentials.h"
#include "rpc/grpc/etcd.pb.h"
#include "rpc/grpc/etcd_session.h"
#include "rpc/grpc/member_entry.h"
#include "rpc/member_table.h"
#include "rpc/redial.h"

namespace tandem::rpc {
namespace {

namespace etcd = etcdserverpb;

class EtcdMembership final : public Membership, private EtcdEvents {
 public:
  EtcdMembership(const EtcdOptions& options, io::Executor& executor, MembershipEvents& events)
      : options_(options),
        executor_(executor),
        folder_("/tandem/" + options.cluster + "/workers/"),
        table_(events),
        timers_(executor),
        redial_({.redial_first = options.retry_first, .redial_max = options.retry_max},
                static_cast<uint64_t>(executor.now().time_since_epoch().count())) {
    connect();
    tick();
  }

  Result<void> announce(Member self) override;
  void withdraw() override;
  const std::map<std::string, Member>& members() const override { return table_.members(); }
  MembershipStatus status() const override;

 private:
  void on_watch(const etcd::WatchResponse& response) override;
  void on_lease(int64_t lease, bool alive) override;
  void on_session_lost(const Error& error) override { lose(error); }

  // The connection.
  void connect();
  void tick();
  void lose(const Error& error);
  const std::string& endpoint() const {
    return options_.endpoints[endpoint_ % options_.endpoints.size()];
  }

  // The list.
  void read_all();
  void follow();
  void apply(const etcd::Event& event);
  std::optional<Member> member_of(const etcd::KeyValue& entry);

  // The own entry.
  std::string own_key() const { return folder_ + self_->id; }
  void ask_for_lease();
  void read_own_entry();
  void write_own_entry(int64_t mod_revision);

  const EtcdOptions options_;
  io::Executor& executor_;
  const std::string folder_;
  MemberTable table_;
  MembershipStatus status_;
  io::Timers timers_;
  Redial redial_;

  std::unique_ptr<EtcdSession> session_;  ///< nothing while it waits for the next attempt
  std::vector<std::unique_ptr<EtcdSession>> ended_;  ///< until gRPC is done with them
  size_t endpoint_ = 0;
  io::Time connected_at_{};
  io::Time lost_at_{};
  std::string lost_why_ = "not asked yet";

  uint64_t cluster_id_ = 0;
  int64_t revision_ = 0;  ///< all up to here is known; 0: nothing

  std::optional<Member> self_;
  int64_t lease_ = 0;  ///< 0: none
  bool written_ = false;
  bool writing_ = false;     ///< an attempt is under way
  int64_t own_gone_at_ = 0;  ///< the revision that took the own entry away; 0: none did
  std::string refused_;      ///< why the entry may not be written
};

// The connection.

void EtcdMembership::connect() {
  std::erase_if(ended_, [](const auto& session) { return session->is_done(); });
  session_ = EtcdSession::open(
      {.endpoint = endpoint(), .credentials = options_.credentials, .call_max = options_.call_max},
      executor_, *this);
  connected_at_ = timers_.now();
  writing_ = false;
  if (revision_ == 0) {
    read_all();
  } else {
    follow();
  }
  if (self_ && lease_ != 0) session_->renew(lease_);
  if (self_ && lease_ == 0) ask_for_lease();
}

void EtcdMembership::tick() {
  timers_.after(std::chrono::nanoseconds(options_.lease) / 3, [this] { tick(); });
  if (!session_) return;
  // A watch is silent when nothing happens and when etcd is gone; this tells the two apart. It is
  // answered by a majority of etcd, not by one that was cut off from it.
  etcd::RangeRequest probe;
  probe.set_key(folder_);
  probe.set_count_only(true);
  session_->range(std::move(probe), [this](Result<etcd::RangeResponse> answer) {
    if (!answer.ok()) lose(answer.error());
  });
  if (!session_ || !self_) return;
  if (lease_ != 0) {
    session_->renew(lease_);
  } else {
    ask_for_lease();
  }
}

void EtcdMembership::lose(const Error& error) {
  if (!session_) return;
  session_->end();
  // Not destroyed: this may be one of its events.
  ended_.push_back(std::move(session_));
  if (std::exchange(status_.reachable, false) || lost_at_ == io::Time{}) lost_at_ = timers_.now();
  lost_why_ = endpoint() + ": " + error.what;
  endpoint_ += 1;
  timers_.after(redial_.next(timers_.now() - connected_at_), [this] { connect(); });
}

MembershipStatus EtcdMembership::status() const {
  MembershipStatus status = status_;
  if (self_) {
    const auto own = table_.members().find(self_->id);
    status.announced =
        written_ && own != table_.members().end() && own->second.generation == self_->generation;
  }
  if (!status.reachable) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
        lost_at_ == io::Time{} ? io::Time::duration{} : timers_.now() - lost_at_);
    status.trouble = "etcd is out of reach since " + std::to_string(seconds.count()) +
                     " s, the list is the last one known (" + lost_why_ + ")";
  } else if (self_ && !status.announced) {
    status.trouble = refused_.empty() ? "not listed yet" : refused_;
  }
  return status;
}

// The list.

void EtcdMembership::read_all() {
  etcd::RangeRequest request;
  request.set_key(folder_);
  request.set_range_end(folder_.substr(0, folder_.size() - 1) + '0');  // the one after '/'
  request.set_limit(static_cast<int64_t>(options_.members_max));
  session_->range(std::move(request), [this](Result<etcd::RangeResponse> answer) {
    if (!answer.ok()) return lose(answer.error());
    cluster_id_ = answer->header().cluster_id();
    revision_ = answer->header().revision();
    status_.ignored_entries = static_cast<uint64_t>(answer->count() - answer->kvs_size());
    std::map<std::string, Member> members;
    for (const etcd::KeyValue& entry : answer->kvs()) {
      if (auto member = member_of(entry)) members.emplace(member->id, std::move(*member));
    }
    status_.reachable = true;
    status_.snapshots += 1;
    if (self_) {
      const auto own = members.find(self_->id);
      const bool is_there = own != members.end() && own->second.generation == self_->generation;
      own_gone_at_ = is_there ? 0 : revision_;
      if (!is_there) written_ = false;
    }
    table_.replace(std::move(members));
    follow();
  });
}

void EtcdMembership::follow() {
  if (!session_) return;
  etcd::WatchCreateRequest request;
  request.set_key(folder_);
  request.set_range_end(folder_.substr(0, folder_.size() - 1) + '0');
  request.set_start_revision(revision_ + 1);
  session_->watch(std::move(request));
}

void EtcdMembership::on_watch(const etcd::WatchResponse& response) {
  if (response.canceled()) {
    // What is missing has been compacted away.
    if (response.compact_revision() > 0) return read_all();
    return lose(make_error(Code::kUnavailable, "the watch ended: " + response.cancel_reason()));
  }
  // Another etcd, or one that lost its data, would wait for a revision that comes in years.
  if (response.created() &&
      (response.header().cluster_id() != cluster_id_ || response.header().revision() < revision_)) {
    return read_all();
  }
  status_.reachable = true;
  for (const etcd::Event& event : response.events()) apply(event);
}

void EtcdMembership::apply(const etcd::Event& event) {
  // Not the revision of the response: when much is missed, that is ahead of what it brings.
  revision_ = std::max(revision_, event.kv().mod_revision());
  const std::string id = event.kv().key().substr(folder_.size());
  const bool is_put = event.type() == etcd::Event::PUT;
  const auto member = is_put ? member_of(event.kv()) : std::nullopt;
  if (self_ && self_->id == id && (!member || member->generation != self_->generation)) {
    written_ = false;
    own_gone_at_ = event.kv().mod_revision();
  }
  if (!member) return table_.erase(id);
  if (table_.members().size() >= options_.members_max && !table_.members().contains(id)) {
    status_.ignored_entries += 1;
    return;
  }
  table_.put(*member);
}

std::optional<Member> EtcdMembership::member_of(const etcd::KeyValue& entry) {
  auto member = parse_member_text(entry.value());
  if (!member.ok() || folder_ + member->id != entry.key()) {
    status_.ignored_entries += 1;
    return std::nullopt;
  }
  member->registration = static_cast<uint64_t>(entry.create_revision());
  return std::move(*member);
}

// The own entry.

Result<void> EtcdMembership::announce(Member self) {
  TANDEM_TRY(check_member(self));
  if (self_ && self_->id != self.id) {
    return make_error(Code::kFailedPrecondition, "announced as \"" + self_->id + "\" already");
  }
  self_ = std::move(self);
  written_ = false;
  if (!session_) return {};
  if (lease_ == 0) {
    ask_for_lease();
  } else {
    read_own_entry();
  }
  return {};
}

void EtcdMembership::withdraw() {
  if (!self_) return;
  self_.reset();
  written_ = false;
  const int64_t lease = std::exchange(lease_, 0);
  if (!session_ || lease == 0) return;  // the lease runs out by itself
  etcd::LeaseRevokeRequest request;
  request.set_id(lease);
  session_->revoke(std::move(request), [this](Result<etcd::LeaseRevokeResponse> answer) {
    // It may have run out just now.
    if (!answer.ok() && answer.error().code != Code::kNotFound) lose(answer.error());
  });
}

void EtcdMembership::ask_for_lease() {
  if (std::exchange(writing_, true)) return;
  etcd::LeaseGrantRequest request;
  request.set_ttl(options_.lease.count());
  session_->grant(std::move(request), [this](Result<etcd::LeaseGrantResponse> answer) {
    writing_ = false;
    if (!answer.ok()) return lose(answer.error());
    if (!self_) return;  // withdrawn meanwhile; nothing hangs on the lease
    lease_ = answer->id();
    read_own_entry();
  });
}

void EtcdMembership::on_lease(int64_t lease, bool alive) {
  if (lease != lease_ || !self_) return;
  if (!alive) {
    lease_ = 0;
    written_ = false;
    ask_for_lease();
  } else if (!written_) {
    read_own_entry();
  }
}

void EtcdMembership::read_own_entry() {
  if (std::exchange(writing_, true)) return;
  etcd::RangeRequest request;
  request.set_key(own_key());
  session_->range(std::move(request), [this](Result<etcd::RangeResponse> answer) {
    writing_ = false;
    if (!answer.ok()) return lose(answer.error());
    if (!self_ || lease_ == 0) return;
    if (answer->kvs_size() == 0) return write_own_entry(0);
    const auto there = parse_member_text(answer->kvs(0).value());
    if (there.ok() && there->generation > self_->generation) {
      refused_ = "\"" + self_->id + "\" is listed by a newer process, of generation " +
                 std::to_string(there->generation) + " at " + there->address + "; ids must differ";
      return;  // the next renewal of the lease looks again
    }
    write_own_entry(answer->kvs(0).mod_revision());
  });
}

void EtcdMembership::write_own_entry(int64_t mod_revision) {
  if (!session_) return;
  writing_ = true;
  etcd::TxnRequest request;
  etcd::Compare& unchanged = *request.add_compare();
  unchanged.set_target(etcd::Compare::MOD);
  unchanged.set_key(own_key());
  unchanged.set_mod_revision(mod_revision);
  etcd::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(own_key());
  put.set_value(member_text(*self_));
  put.set_lease(lease_);
  session_->txn(std::move(request), [this, sent = *self_](Result<etcd::TxnResponse> answer) {
    writing_ = false;
    if (!answer.ok() && answer.error().code == Code::kNotFound) {
      lease_ = 0;  // it ran out; the next tick asks for another
      return;
    }
    if (!answer.ok()) return lose(answer.error());
    if (!self_) return;
    refused_.clear();
    // The watch is another stream: it may have told the end of this entry already.
    written_ = answer->succeeded() && sent == *self_ && answer->header().revision() > own_gone_at_;
    // Somebody else wrote it or took it away, or it was announced with other fields meanwhile.
    if (!written_) read_own_entry();
  });
}

Result<void> check(const EtcdOptions& options) {
  const auto bad = [](std::string what) { return make_error(Code::kInvalidArgument, what); };
  if (options.endpoints.empty()) return bad("no endpoint of etcd is given");
  if (options.lease < std::chrono::seconds(1)) return bad("a lease lasts at least 1 s");
  if (options.members_max == 0) return bad("members_max is 0");
  for (const auto time : {options.call_max, options.retry_first, options.retry_max}) {
    if (time.count() <= 0) return bad("a time of the membership is not positive");
  }
  Member named = {.id = options.cluster, .address = "any"};
  if (!check_member(named).ok()) {
    return bad("\"" + options.cluster +
               "\" is no name of a cluster; use letters, digits, dots, underscores and hyphens");
  }
  // Without TLS etcd is open to whoever reaches it, which is the operator's decision.
  return options.credentials.key.empty() ? Result<void>() : check_credentials(options.credentials);
}

}  // namespace

Result<std::unique_ptr<Membership>> open_etcd_membership(const EtcdOptions& options,
                                                         io::Executor& executor,
                                                         MembershipEvents& events) {
  TANDEM_TRY(check(options));
  return std::unique_ptr<Membership>(std::make_unique<EtcdMembership>(options, executor, events));
}

}  // namespace tandem::rpc
