#include "rpc/grpc/member_entry.h"

#include <google/protobuf/util/json_util.h>

#include "base/check.h"
#include "rpc/grpc/member.pb.h"

namespace tandem::rpc {

std::string member_text(const Member& member) {
  wire::MemberEntry entry;
  entry.set_id(member.id);
  entry.set_role(role_name(member.role));
  entry.set_generation(member.generation);
  entry.set_address(member.address);
  for (const std::string& address : member.data_addresses) entry.add_data_addresses(address);
  entry.set_ranks(member.capacity.ranks);
  entry.set_page_tokens(member.capacity.page_tokens);
  entry.set_pages(member.capacity.pages);
  entry.set_requests_max(member.capacity.requests_max);
  entry.set_layout(member.layout);
  entry.set_draining(member.draining);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(entry, &text, options);
  TANDEM_CHECK(status.ok(), "an entry is always valid JSON: check_member() limits its strings");
  return text;
}

Result<Member> parse_member_text(const std::string& text) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  wire::MemberEntry entry;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &entry, options);
  if (!status.ok()) {
    return make_error(Code::kDataLoss, "not the JSON of a worker: " + status.ToString());
  }
  Member member;
  member.id = entry.id();
  if (entry.role() != role_name(Role::kPrefill) && entry.role() != role_name(Role::kDecode)) {
    return make_error(Code::kDataLoss, "worker \"" + member.id + "\" has the role \"" +
                                           entry.role() + "\", which this release does not know");
  }
  member.role = entry.role() == role_name(Role::kPrefill) ? Role::kPrefill : Role::kDecode;
  member.generation = entry.generation();
  member.address = entry.address();
  member.data_addresses.assign(entry.data_addresses().begin(), entry.data_addresses().end());
  member.capacity = {.ranks = entry.ranks(),
                     .page_tokens = entry.page_tokens(),
                     .pages = entry.pages(),
                     .requests_max = entry.requests_max()};
  member.layout = entry.layout();
  member.draining = entry.draining();
  if (auto checked = check_member(member); !checked.ok()) {
    return make_error(Code::kDataLoss, checked.error().what);
  }
  return member;
}

}  // namespace tandem::rpc
