// The calls of a decode worker to a prefill worker, and their answers.
#include <fmt/format.h>

#include <span>
#include <type_traits>
#include <utility>

#include "cluster/wire/fields.h"
#include "cluster/wire/worker_message.h"

namespace tandem::cluster {
namespace {

using wire::Writer;

enum class Kind : uint8_t { kHello = 1, kLinkOffer, kWelcome };

constexpr uint32_t kTransferBytesMax = 8192;  ///< of an encoded address or region
constexpr size_t kRankBytesMin = 8;           ///< two counts, of an offer's rank
constexpr size_t kRegionsBytesMin = 8;        ///< two counts

void put_layout(Writer& writer, const kv::KvLayout& layout) {
  writer.put(layout.format);
  writer.put_enum(layout.element);
  writer.put(layout.layers);
  writer.put(layout.mtp_layers);
  writer.put(layout.kv_heads);
  writer.put(layout.head_dim);
  writer.put(layout.page_tokens);
  writer.put(layout.pages_total);
  writer.put_list(layout.rank_heads, [&](const kv::HeadRange& heads) {
    writer.put(heads.first);
    writer.put(heads.end);
  });
}

kv::KvLayout take_layout(ByteReader& reader, const WireLimits& limits) {
  kv::KvLayout layout;
  layout.format = reader.take<uint32_t>();
  layout.element = reader.take_enum(kv::KvElement::kF32, kv::KvElement::kBF16);
  layout.layers = reader.take<uint32_t>();
  layout.mtp_layers = reader.take<uint32_t>();
  layout.kv_heads = reader.take<uint32_t>();
  layout.head_dim = reader.take<uint32_t>();
  layout.page_tokens = reader.take<uint32_t>();
  layout.pages_total = reader.take<uint32_t>();
  layout.rank_heads = reader.take_list(limits.list_max, 8, [&] {
    const auto first = reader.take<uint32_t>();
    return kv::HeadRange{first, reader.take<uint32_t>()};
  });
  reader.require(reader.ok() && kv::validate(layout).ok());
  return layout;
}

/// What the transfer layer writes in its own words.
template <typename Value>
void put_transfer(Writer& writer, const Value& value) {
  const transfer::Bytes bytes = transfer::encode(value);
  writer.put(static_cast<uint32_t>(bytes.size()));
  writer.put_bytes(bytes);
}

template <typename Value>
Value take_transfer(ByteReader& reader, Result<Value> (*decode)(std::span<const std::byte> bytes)) {
  const auto count = reader.take<uint32_t>();
  reader.require(count <= kTransferBytesMax);
  auto value = decode(reader.take_bytes(count));
  return reader.require(value.ok()) ? *std::move(value) : Value{};
}

void put(Writer& writer, const Hello& hello) {
  writer.put_enum(Kind::kHello);
  writer.put_text(hello.build);
  writer.put_text(hello.fingerprint);
  writer.put_text(hello.compute);
  writer.put(static_cast<uint32_t>(hello.vocabulary_size));
  writer.put(hello.model_length_max);
  put_layout(writer, hello.layout);
}

Hello take_hello(ByteReader& reader, const WireLimits& limits) {
  Hello hello;
  hello.build = reader.take_text(limits.text_bytes_max);
  hello.fingerprint = reader.take_text(limits.text_bytes_max);
  hello.compute = reader.take_text(limits.text_bytes_max);
  const auto vocabulary_size = reader.take<uint32_t>();
  reader.require(vocabulary_size >= 1 && vocabulary_size <= INT32_MAX);
  hello.vocabulary_size = static_cast<int32_t>(vocabulary_size);
  hello.model_length_max = reader.take<uint32_t>();
  hello.layout = take_layout(reader, limits);
  return hello;
}

void put(Writer& writer, const LinkOffer& offer) {
  writer.put_enum(Kind::kLinkOffer);
  writer.put(offer.link.value);
  writer.put_text(offer.name);
  put_layout(writer, offer.layout);
  writer.put_list(offer.ranks, [&](const LinkOffer::Rank& rank) {
    put_transfer(writer, rank.address);
    writer.put_list(rank.regions, [&](const LinkOffer::Regions& regions) {
      put_transfer(writer, regions.memory);
      put_transfer(writer, regions.sidecars);
    });
  });
}

LinkOffer take_offer(ByteReader& reader, const WireLimits& limits) {
  LinkOffer offer;
  offer.link.value = reader.take<uint64_t>();
  offer.name = reader.take_text(limits.text_bytes_max);
  offer.layout = take_layout(reader, limits);
  offer.ranks = reader.take_list(limits.list_max, kRankBytesMin, [&] {
    LinkOffer::Rank rank;
    rank.address = take_transfer(reader, transfer::decode_address);
    rank.regions = reader.take_list(limits.list_max, kRegionsBytesMin, [&] {
      LinkOffer::Regions regions;
      regions.memory = take_transfer(reader, transfer::decode_region);
      regions.sidecars = take_transfer(reader, transfer::decode_region);
      return regions;
    });
    return rank;
  });
  reader.require(offer.ranks.size() == offer.layout.ranks_count());
  return offer;
}

Error malformed() {
  return make_error(Code::kDataLoss,
                    "what a peer sent is no handshake within the limits; do both run the same "
                    "build?");
}

}  // namespace

std::string encode(const WorkerCall& call) {
  Writer writer;
  std::visit([&](const auto& body) { put(writer, body); }, call);
  return writer.take();
}

Result<WorkerCall> decode_call(std::string_view bytes, const WireLimits& limits) {
  ByteReader reader(bytes);
  WorkerCall call;
  if (reader.take_enum(Kind::kHello, Kind::kLinkOffer) == Kind::kHello) {
    call = take_hello(reader, limits);
  } else {
    call = take_offer(reader, limits);
  }
  if (!reader.is_at_end()) return malformed();
  return call;
}

std::string encode(const Welcome& welcome) {
  Writer writer;
  writer.put_enum(Kind::kWelcome);
  put_layout(writer, welcome.source.layout);
  writer.put_list(welcome.source.ranks,
                  [&](const transfer::EngineAddress& address) { put_transfer(writer, address); });
  writer.put(welcome.generation);
  writer.put_text(welcome.process.boot);
  writer.put(welcome.process.id_namespace);
  writer.put(welcome.process.started_ticks);
  writer.put(static_cast<uint32_t>(welcome.process.id));
  return writer.take();
}

Result<Welcome> decode_welcome(std::string_view bytes, const WireLimits& limits) {
  ByteReader reader(bytes);
  reader.take_enum(Kind::kWelcome, Kind::kWelcome);
  Welcome welcome;
  welcome.source.layout = take_layout(reader, limits);
  welcome.source.ranks = reader.take_list(
      limits.list_max, 4, [&] { return take_transfer(reader, transfer::decode_address); });
  reader.require(welcome.source.ranks.size() == welcome.source.layout.ranks_count());
  welcome.generation = reader.take<uint64_t>();
  welcome.process.boot = reader.take_text(limits.text_bytes_max);
  welcome.process.id_namespace = reader.take<uint64_t>();
  welcome.process.started_ticks = reader.take<uint64_t>();
  const auto id = reader.take<uint32_t>();
  reader.require(id <= INT32_MAX);
  welcome.process.id = static_cast<int32_t>(id);
  if (!reader.is_at_end()) return malformed();
  return welcome;
}

Result<void> check_match(const Hello& decode, const Hello& prefill) {
  std::string text;
  const auto compare = [&](std::string_view field, const auto& ours, const auto& theirs) {
    if (ours == theirs) return;
    text +=
        fmt::format("{}{}: {} decodes, {} prefills", text.empty() ? "" : "; ", field, ours, theirs);
  };
  compare("build", decode.build, prefill.build);
  compare("model", decode.fingerprint, prefill.fingerprint);
  compare("compute", decode.compute, prefill.compute);
  compare("vocabulary", decode.vocabulary_size, prefill.vocabulary_size);
  for (const kv::LayoutMismatch& mismatch : kv::layout_mismatches(prefill.layout, decode.layout)) {
    compare("kv " + mismatch.field, mismatch.target, mismatch.source);
  }
  if (text.empty()) return {};
  return make_error(Code::kFailedPrecondition, std::move(text));
}

}  // namespace tandem::cluster
