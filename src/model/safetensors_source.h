#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/mapped_file.h"
#include "model/safetensors.h"
#include "model/weight_source.h"

namespace tandem::model {

/// The weights of a model folder: `model.safetensors`, or the shards that
/// `model.safetensors.index.json` names. Owns the mapped files; tensors are views into them, so
/// nothing is read before it is used and release() gives the pages back.
class SafetensorsSource final : public WeightSource {
 public:
  /// Opens and checks every file. An absent or damaged shard, a tensor that index and shards
  /// disagree about and one that two shards hold are told together in one Error.
  static Result<SafetensorsSource> open(const std::filesystem::path& folder);

  std::vector<std::string> names() const override;
  Result<WeightView> tensor(const std::string& name) override;
  Result<WeightView> slice(const std::string& name, const WeightSlice& part) override;
  Result<WeightInfo> describe(const std::string& name) override;
  void release(const std::string& name) override;

  size_t shards_count() const { return shards_.size(); }

 private:
  struct Shard {
    std::string name;
    io::MappedFile file;
    SafetensorsHeader header;
  };
  struct Place {
    size_t shard;
    size_t tensor;  // index into the shard's header
  };

  explicit SafetensorsSource(std::vector<Shard> shards);
  static Result<Shard> open_shard(const std::filesystem::path& folder, const std::string& name);
  static Result<std::vector<Shard>> open_indexed(const std::filesystem::path& folder);
  Result<WeightView> view_of(const std::string& name) const;
  void prefetch(const std::string& name, const WeightView& view) const;
  Result<Place> find(const std::string& name) const;
  const SafetensorsTensor& at(Place place) const;

  std::vector<Shard> shards_;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace tandem::model
