#include "model/safetensors_source.h"

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "io/file.h"
#include "model/findings.h"
#include "model/json_fields.h"

namespace tandem::model {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = size_t{256} << 20;  // a few hundred bytes for a million tensors

/// The index comes with the checkpoint, so it may name files of this folder only. (Links are
/// followed: they are made by whoever put the folder there, as the Hugging Face cache does.)
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

/// Shard name -> names of its tensors, as the index file states it.
using Index = std::map<std::string, std::set<std::string>>;

Result<Index> read_index(const std::filesystem::path& path) {
  const std::string text = TANDEM_TRY(io::read_file(path, kIndexBytesMax));
  const Json document = TANDEM_TRY(parse_strict_json(text));
  if (!document.is_object()) {
    return make_error(Code::kInvalidArgument, "expected an object, not " + json_excerpt(document));
  }
  const Json* weight_map = TANDEM_TRY(JsonFields(document).object("weight_map"));
  if (weight_map == nullptr) {
    return make_error(Code::kInvalidArgument, "\"weight_map\" is absent");
  }
  Index index;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string() || !is_plain_name(shard.get_ref<const std::string&>())) {
      return make_error(Code::kInvalidArgument, "tensor " + json_excerpt(tensor) +
                                                    " is said to be in " + json_excerpt(shard) +
                                                    ", which is not a plain file name");
    }
    index[shard.get_ref<const std::string&>()].insert(tensor);
  }
  if (index.empty()) return make_error(Code::kInvalidArgument, "\"weight_map\" names no tensor");
  return index;
}

}  // namespace

Result<SafetensorsSource::Shard> SafetensorsSource::open_shard(const std::filesystem::path& folder,
                                                               const std::string& name) {
  io::MappedFile file = TANDEM_TRY(io::MappedFile::open(folder / name));
  Result<SafetensorsHeader> header = parse_safetensors_header(file.bytes());
  if (!header.ok()) return with_context(header.error(), (folder / name).string());
  return Shard{.name = name, .file = std::move(file), .header = std::move(*header)};
}

Result<std::vector<SafetensorsSource::Shard>> SafetensorsSource::open_indexed(
    const std::filesystem::path& folder) {
  Result<Index> read = read_index(folder / kIndexFile);
  if (!read.ok()) return with_context(read.error(), (folder / kIndexFile).string());
  Index& index = *read;

  Findings findings;
  std::vector<Shard> shards;
  std::map<std::string, std::string> shard_of;
  for (auto& [name, expected] : index) {
    Result<Shard> shard = open_shard(folder, name);
    if (!shard.ok()) {
      findings.add("shards that cannot be read", shard.error().what);
      continue;
    }
    for (const SafetensorsTensor& tensor : shard->header.tensors) {
      const auto [other, is_new] = shard_of.emplace(tensor.name, name);
      if (!is_new) {
        findings.add("tensors in two shards",
                     tensor.name + " (" + other->second + " and " + name + ")");
      } else if (expected.count(tensor.name) == 0) {
        findings.add("tensors of a shard that the index does not name there",
                     tensor.name + " (" + name + ")");
      }
      expected.erase(tensor.name);
    }
    for (const std::string& absent : expected) {
      findings.add("tensors of the index that are not in their shard", absent + " (" + name + ")");
    }
    shards.push_back(std::move(*shard));
  }
  if (findings.empty()) return shards;
  return make_error(Code::kDataLoss, folder.string() +
                                         ": index and shards disagree, copy or download the " +
                                         "checkpoint again: " + findings.text());
}

Result<SafetensorsSource> SafetensorsSource::open(const std::filesystem::path& folder) {
  // The order of transformers, should a folder hold both.
  if (io::path_exists(folder / kSingleFile)) {
    std::vector<Shard> shards;
    shards.push_back(TANDEM_TRY(open_shard(folder, kSingleFile)));
    return SafetensorsSource(std::move(shards));
  }
  if (io::path_exists(folder / kIndexFile))
    return SafetensorsSource(TANDEM_TRY(open_indexed(folder)));
  return make_error(Code::kNotFound, folder.string() + " holds no weights: neither " + kSingleFile +
                                         " nor " + kIndexFile +
                                         " is there (other formats are not read)");
}

SafetensorsSource::SafetensorsSource(std::vector<Shard> shards) : shards_(std::move(shards)) {
  for (size_t s = 0; s < shards_.size(); ++s) {
    const std::vector<SafetensorsTensor>& tensors = shards_[s].header.tensors;
    for (size_t t = 0; t < tensors.size(); ++t) places_.emplace(tensors[t].name, Place{s, t});
  }
}

std::vector<std::string> SafetensorsSource::names() const {
  std::vector<std::string> names;
  names.reserve(places_.size());
  for (const Shard& shard : shards_) {
    for (const SafetensorsTensor& tensor : shard.header.tensors) names.push_back(tensor.name);
  }
  return names;
}

Result<WeightView> SafetensorsSource::tensor(const std::string& name) {
  const WeightView view = TANDEM_TRY(view_of(name));
  prefetch(name, view);
  return view;
}

Result<WeightView> SafetensorsSource::slice(const std::string& name, const WeightSlice& part) {
  const WeightView view = cut(TANDEM_TRY(view_of(name)), part);
  // Some columns of every row: the pages in between are not wanted.
  if (!part.columns) prefetch(name, view);
  return view;
}

void SafetensorsSource::prefetch(const std::string& name, const WeightView& view) const {
  const io::MappedFile& file = shards_[find(name)->shard].file;
  file.prefetch(static_cast<size_t>(view.bytes.data() - file.bytes().data()), view.bytes.size());
}

Result<WeightView> SafetensorsSource::view_of(const std::string& name) const {
  const Place place = TANDEM_TRY(find(name));
  const SafetensorsTensor& tensor = at(place);
  const Shard& shard = shards_[place.shard];
  if (!tensor.dtype.dtype) {
    return make_error(Code::kUnimplemented, shard.name + ": tensor \"" + name + "\" has dtype " +
                                                tensor.dtype.name + ", which is not supported");
  }
  return WeightView{.dtype = *tensor.dtype.dtype,
                    .shape = tensor.shape,
                    .bytes = shard.file.bytes().subspan(tensor.offset, tensor.bytes)};
}

Result<WeightInfo> SafetensorsSource::describe(const std::string& name) {
  const Place place = TANDEM_TRY(find(name));
  const SafetensorsTensor& tensor = at(place);
  return WeightInfo{.dtype_name = tensor.dtype.name,
                    .dtype = tensor.dtype.dtype,
                    .shape = tensor.shape,
                    .bytes = tensor.bytes,
                    .file = shards_[place.shard].name};
}

void SafetensorsSource::release(const std::string& name) {
  const Result<Place> place = find(name);
  if (!place.ok()) return;
  const SafetensorsTensor& tensor = at(*place);
  shards_[place->shard].file.drop(tensor.offset, tensor.bytes);
}

Result<SafetensorsSource::Place> SafetensorsSource::find(const std::string& name) const {
  const auto place = places_.find(name);
  if (place != places_.end()) return place->second;
  return make_error(Code::kNotFound, "the checkpoint has no tensor \"" + name + "\"");
}

const SafetensorsTensor& SafetensorsSource::at(Place place) const {
  return shards_[place.shard].header.tensors[place.tensor];
}

}  // namespace tandem::model
