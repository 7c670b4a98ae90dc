#include "rpc/membership.h"

#include <algorithm>

namespace tandem::rpc {
namespace {

constexpr size_t kIdBytesMax = 128;
constexpr size_t kAddressBytesMax = 256;
constexpr size_t kDataAddressesMax = 1024;
constexpr size_t kLayoutBytesMax = 64 << 10;

bool is_id_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

bool is_address(const std::string& text) {
  const auto is_visible = [](char c) { return c > ' ' && c <= '~'; };
  return !text.empty() && text.size() <= kAddressBytesMax &&
         std::all_of(text.begin(), text.end(), is_visible);
}

}  // namespace

const char* role_name(Role role) {
  switch (role) {
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
  }
  return "unknown";
}

Result<void> check_member(const Member& member) {
  const auto bad = [&](const std::string& what) {
    return make_error(Code::kInvalidArgument, "worker \"" + member.id + "\": " + what);
  };
  if (member.id.empty() || member.id.size() > kIdBytesMax ||
      !std::all_of(member.id.begin(), member.id.end(), is_id_character)) {
    return bad("an id has 1 to 128 letters, digits, dots, underscores and hyphens");
  }
  if (member.role != Role::kPrefill && member.role != Role::kDecode) return bad("unknown role");
  if (!is_address(member.address)) return bad("an address is 1 to 256 visible ASCII characters");
  if (member.data_addresses.size() > kDataAddressesMax) return bad("more than 1024 data addresses");
  for (const std::string& address : member.data_addresses) {
    if (address.size() > kAddressBytesMax) return bad("a data address has more than 256 bytes");
  }
  if (member.layout.size() > kLayoutBytesMax) return bad("the layout has more than 64 KiB");
  return {};
}

}  // namespace tandem::rpc
