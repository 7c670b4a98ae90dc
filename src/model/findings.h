#pragma once

#include <string>
#include <vector>

namespace tandem::model {

/// Collects what is wrong with a checkpoint by kind, so that one Error can tell all of it.
class Findings {
 public:
  /// `kind` reads as a heading: "missing tensors".
  void add(const std::string& kind, std::string item);
  bool empty() const { return groups_.empty(); }

  /// "missing tensors (22): a, b, ... and 2 more; wrong shape (1): c". Kinds stand in the order of
  /// their first finding; of each kind at most kItemsMax are named.
  std::string text() const;

  static constexpr size_t kItemsMax = 20;

 private:
  struct Group {
    std::string kind;
    std::vector<std::string> items;  // the first kItemsMax
    size_t count = 0;
  };
  std::vector<Group> groups_;
};

}  // namespace tandem::model
