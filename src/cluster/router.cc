#include "cluster/router.h"

#include <fmt/format.h>

#include "base/check.h"
#include "cluster/wire/request_codec.h"

namespace tandem::cluster {

using engine::Event;
using engine::EventSink;
using engine::FinishReason;

Router::Router(Options options, io::Executor& executor)
    : options_(std::move(options)), timers_(executor), board_(options_.board), box_(executor) {
  publish();
}

void Router::start(rpc::Channel& channel) {
  channel_ = &channel;
  check_silence();
}

Router::~Router() {
  channel_ = nullptr;
  links_.clear();
  box_.run();  // what was submitted has an end as well
  const Error ends = make_error(Code::kUnavailable, "the router ends; send the request again");
  while (!requests_.empty()) end(requests_.begin()->second, FinishReason::kError, ends);
  flush();
}

// From any thread.

Result<void> Router::submit(engine::Request request, EventSink& sink) {
  TANDEM_TRY(wire::check(request, options_.wire));
  const uint64_t tokens = request.prompt.size();
  {
    const std::lock_guard lock(mutex_);
    if (requests_count_ >= options_.requests_max) {
      return make_error(
          Code::kResourceExhausted,
          fmt::format("{} requests are in flight already; try again", requests_count_));
    }
    if (tokens > options_.tokens_max - tokens_count_) {
      return make_error(Code::kResourceExhausted,
                        fmt::format("the prompts in flight have {} tokens; {} more are above the "
                                    "limit of {}: try again",
                                    tokens_count_, tokens, options_.tokens_max));
    }
    requests_count_ += 1;
    tokens_count_ += tokens;
  }
  box_.post([this, request = std::move(request), &sink]() mutable {
    place(std::move(request), sink);
    flush();
  });
  return {};
}

void Router::cancel(RequestId id) {
  box_.post([this, id] {
    cancel_now(id);
    flush();
  });
}

engine::EngineStatus Router::status() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

// Requests.

void Router::place(engine::Request request, EventSink& sink) {
  const RequestId id = request.id;
  const auto [placed, is_new] = requests_.emplace(id, Request{std::move(request), &sink});
  TANDEM_CHECK(is_new, "two requests in flight have one id");
  if (channel_ != nullptr) assign(placed->second);
}

/// Until one worker has it, or it has had its attempts.
void Router::assign(Request& request) {
  std::optional<Error> refused;
  while (request.attempts.size() < options_.attempts_max) {
    const engine::Request& asked = request.request;
    auto assignment =
        board_.assign(asked.prompt, asked.cache_salt, asked.tokens_max, request.attempts);
    if (!assignment.ok()) return end(request, FinishReason::kError, assignment.error());
    request.attempts.push_back(*assignment);
    const auto sent = send(request, *assignment);
    if (sent.ok()) return;
    board_.not_sent(*assignment);
    refused = with_context(sent.error(), "worker " + assignment->decode_worker);
    if (sent.error().code == Code::kInvalidArgument) break;  // too long for any of them
  }
  end(request, FinishReason::kError, refused);
}

Result<void> Router::send(Request& request, const Assignment& assignment) {
  const auto connection = workers_.at(assignment.decode_worker).connection;
  if (!connection) return make_error(Code::kUnavailable, "its connection has just been closed");
  Link& link = links_.at(*connection);
  const RequestId client_id = request.request.id;
  const RequestId id_there{++link.ids_made};
  const uint64_t number = link.numbers_before + assignment.decode_number;
  Submit submit{number, assignment.decode_rank, assignment.prefill_worker.value_or(""),
                std::move(request.request)};
  submit.request.id = id_there;
  WorkerMessage message(std::move(submit));
  const auto sent = channel_->send(*connection, encode(message, options_.wire));
  request.request = std::move(std::get<Submit>(message).request);
  request.request.id = client_id;
  if (!sent.ok()) {
    if (sent.error().code == Code::kUnavailable) {
      board_.disconnected(assignment.decode_worker, sent.error().what);
    }
    return sent;
  }
  link.number = number;
  link.requests.emplace(id_there, client_id);
  request.connection = *connection;
  request.id_there = id_there;
  return {};
}

void Router::cancel_now(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  // Its end does not wait for the worker, which may be dying.
  if (links_.contains(request.connection)) {
    send_cancellation(request.connection, request.id_there);
  }
  end(request, FinishReason::kCancelled, std::nullopt);
}

Result<void> Router::pass_on(rpc::ConnectionId connection, Event event) {
  const Link& link = links_.at(connection);
  const auto found = link.requests.find(event.id);
  if (found == link.requests.end()) return {};  // cancelled meanwhile
  Request& request = requests_.at(found->second);
  const size_t room = request.request.tokens_max - request.tokens;
  if (event.tokens.size() > room) {
    return make_error(Code::kDataLoss, "more tokens came than were asked for");
  }
  board_.prefilled(request.attempts.back());
  event.id = request.request.id;
  request.tokens += static_cast<uint32_t>(event.tokens.size());
  std::optional<Error> lost;
  if (event.error && event.error->code == Code::kUnavailable) lost = event.error;
  // A worker that stops cancels what it has; clients' own cancellations do not come back here.
  if (event.finish == FinishReason::kCancelled) {
    lost = make_error(Code::kUnavailable, "it was stopped there");
  }
  if (lost) {
    event.finish.reset();
    event.error.reset();
    if (!event.tokens.empty()) emit(*request.sink, std::move(event));
    retry(request, *lost);
    return {};
  }
  EventSink& sink = *request.sink;
  if (event.finish) forget(request);
  emit(sink, std::move(event));
  return {};
}

void Router::retry(Request& request, const Error& why) {
  const std::string worker = request.attempts.back().decode_worker;
  board_.prefilled(request.attempts.back());
  detach(request);
  if (request.tokens == 0 && request.attempts.size() < options_.attempts_max) {
    return assign(request);
  }
  const std::string when = request.tokens > 0
                               ? fmt::format("after {} tokens", request.tokens)
                               : fmt::format("as the last of {} attempts", request.attempts.size());
  end(request, FinishReason::kError,
      make_error(Code::kUnavailable, fmt::format("worker {} lost the request {}: {}; it can be "
                                                 "sent again",
                                                 worker, when, why.what)));
}

/// Nothing more of its last attempt is listened to.
void Router::detach(Request& request) {
  const auto link = links_.find(request.connection);
  if (link == links_.end()) return;
  link->second.requests.erase(request.id_there);
  disconnect_if_idle(link->second.worker);
}

void Router::end(Request& request, FinishReason finish, std::optional<Error> error) {
  Event event;
  event.id = request.request.id;
  event.finish = finish;
  event.error = std::move(error);
  event.prompt_tokens = static_cast<uint32_t>(request.request.prompt.size());
  EventSink& sink = *request.sink;
  forget(request);
  emit(sink, std::move(event));
}

void Router::forget(const Request& request) {
  const RequestId id = request.request.id;
  if (!request.attempts.empty()) board_.prefilled(request.attempts.back());
  detach(requests_.at(id));
  {
    const std::lock_guard lock(mutex_);
    requests_count_ -= 1;
    tokens_count_ -= request.request.prompt.size();
  }
  requests_.erase(id);
}

void Router::emit(EventSink& sink, Event event) {
  outbox_.emplace_back(&sink, std::move(event));
}

/// The last thing in every call from outside: a sink may be gone after its last event.
void Router::flush() {
  std::vector<Event> events;
  for (size_t i = 0; i < outbox_.size(); ++i) {
    events.push_back(std::move(outbox_[i].second));
    const bool is_last = i + 1 == outbox_.size() || outbox_[i + 1].first != outbox_[i].first;
    if (!is_last) continue;
    outbox_[i].first->on_events(events);
    events.clear();
  }
  outbox_.clear();
}

}  // namespace tandem::cluster
