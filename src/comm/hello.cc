#include "comm/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/host.h"

namespace tandem::comm {
namespace {

constexpr const char* kMagic = "tandem rendezvous";
constexpr size_t kPartsBefore = 3;  // magic, host and process id, before the names and values
constexpr size_t kFieldsMax = 64;
constexpr size_t kTextBytesMax = 255;

/// Of a peer's text, what can stand in a log line.
std::string printable(const std::string& text) {
  std::string kept = text.substr(0, kTextBytesMax);
  std::ranges::replace_if(kept, [](char c) { return c < ' ' || c > '~'; }, '?');
  return kept;
}

std::string value_of(const Hello& hello, const std::string& name) {
  const auto field = std::ranges::find(hello.fields, name, [](const auto& f) { return f.first; });
  return field == hello.fields.end() ? "nothing" : field->second;
}

}  // namespace

std::string Hello::name() const {
  return place.name_of(rank);
}

Message encode(const Hello& hello) {
  Message message{.kind = Message::Kind::kHello, .rank = static_cast<uint32_t>(hello.rank)};
  message.parts = {kMagic, hello.place.host, std::to_string(hello.place.process_id)};
  for (const auto& [name, value] : hello.fields) {
    message.parts.push_back(name);
    message.parts.push_back(value);
  }
  return message;
}

std::optional<Hello> hello_of(const Message& message) {
  const auto& parts = message.parts;
  if (message.kind != Message::Kind::kHello || parts.size() < kPartsBefore || parts[0] != kMagic) {
    return std::nullopt;
  }
  Hello hello{.rank = static_cast<int>(std::min<uint32_t>(message.rank, 1u << 20)),
              .place = place_of(parts[1], parts[2])};
  for (size_t i = kPartsBefore; i + 1 < parts.size() && hello.fields.size() < kFieldsMax; i += 2) {
    hello.fields.emplace_back(parts[i], parts[i + 1]);
  }
  return hello;
}

std::string differences(const Hello& mine, const Hello& theirs) {
  std::vector<std::string> names;
  for (const Hello* hello : {&mine, &theirs}) {
    for (const auto& [name, value] : hello->fields) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  std::string text;
  for (const std::string& name : names) {
    const std::string my_value = value_of(mine, name);
    const std::string their_value = value_of(theirs, name);
    if (my_value == their_value) continue;
    text += fmt::format("{}{}: {} has {}, {} has {}", text.empty() ? "" : "; ", printable(name),
                        theirs.name(), printable(their_value), mine.name(), printable(my_value));
  }
  return text;
}

RankPlace place_here() {
  return {io::host_name(), io::process_id()};
}

RankPlace place_of(const std::string& host, const std::string& process_id) {
  RankPlace place{printable(host), 0};
  std::from_chars(process_id.data(), process_id.data() + process_id.size(), place.process_id);
  return place;
}

}  // namespace tandem::comm
