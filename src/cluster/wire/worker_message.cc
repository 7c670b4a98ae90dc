#include "cluster/wire/worker_message.h"

#include <utility>

#include "cluster/wire/fields.h"
#include "cluster/wire/request_codec.h"
#include "cluster/wire/status_codec.h"

namespace tandem::cluster {
namespace {

using wire::Writer;

constexpr size_t kEventBytesMin = 46;

struct PutBody {
  Writer& writer;
  const WireLimits& limits;

  void operator()(const Subscribe&) {}
  void operator()(const Submit& submit) {
    writer.put(submit.number);
    writer.put(submit.group);
    writer.put_text(submit.prefill_worker);
    wire::put_request(writer, submit.request);
  }
  void operator()(const CancelRequest& cancel) { writer.put(cancel.request.value); }
  void operator()(const Events& events) {
    writer.put_list(events.events,
                    [&](const engine::Event& event) { wire::put_event(writer, event, limits); });
  }
  void operator()(const Report& report) {
    writer.put(report.requests_included);
    writer.put(report.queued_tokens);
    writer.put(report.page_tokens);
    writer.put(report.model_length_max);
    writer.put(report.draining);
    writer.put_list(report.groups, [&](const engine::EngineStatus& group) {
      wire::put_status(writer, group, limits);
    });
  }
  void operator()(const Mismatched& mismatched) {
    writer.put_text(mismatched.prefill_worker);
    wire::put_cut_text(writer, mismatched.reason, limits);
  }
  void operator()(const HandoffBytes& handoff) { writer.put_text(handoff.bytes); }
};

Submit take_submit(ByteReader& reader, const WireLimits& limits) {
  Submit submit;
  submit.number = reader.take<uint64_t>();
  submit.group = reader.take<uint32_t>();
  submit.prefill_worker = reader.take_text(limits.text_bytes_max);
  submit.request = wire::take_request(reader, limits);
  return submit;
}

Report take_report(ByteReader& reader, const WireLimits& limits) {
  Report report;
  report.requests_included = reader.take<uint64_t>();
  report.queued_tokens = reader.take<uint64_t>();
  report.page_tokens = reader.take<uint32_t>();
  report.model_length_max = reader.take<uint32_t>();
  report.draining = reader.take_flag();
  report.groups = reader.take_list(limits.list_max, wire::kStatusBytesMin,
                                   [&] { return wire::take_status(reader, limits); });
  return report;
}

Mismatched take_mismatched(ByteReader& reader, const WireLimits& limits) {
  Mismatched mismatched;
  mismatched.prefill_worker = reader.take_text(limits.text_bytes_max);
  mismatched.reason = reader.take_text(limits.text_bytes_max);
  return mismatched;
}

}  // namespace

std::string encode(const WorkerMessage& message, const WireLimits& limits) {
  Writer writer;
  writer.put(static_cast<uint8_t>(message.index()));
  std::visit(PutBody{writer, limits}, message);
  return writer.take();
}

Result<WorkerMessage> decode_message(std::string_view bytes, const WireLimits& limits) {
  ByteReader reader(bytes);
  WorkerMessage message;
  switch (reader.take<uint8_t>()) {
    case 0:
      message = Subscribe{};
      break;
    case 1:
      message = take_submit(reader, limits);
      break;
    case 2:
      message = CancelRequest{RequestId{reader.take<uint64_t>()}};
      break;
    case 3:
      message = Events{reader.take_list(limits.list_max, kEventBytesMin,
                                        [&] { return wire::take_event(reader, limits); })};
      break;
    case 4:
      message = take_report(reader, limits);
      break;
    case 5:
      message = take_mismatched(reader, limits);
      break;
    case 6:
      // Bounded by the channel, and by the hand-off's own limits.
      message = HandoffBytes{reader.take_text(UINT32_MAX)};
      break;
    default:
      reader.require(false);
  }
  if (!reader.is_at_end()) {
    return make_error(Code::kDataLoss,
                      "what a peer sent is no message of a worker or router within the limits; do "
                      "both run the same build?");
  }
  return message;
}

}  // namespace tandem::cluster
