#include "model/findings.h"

#include <algorithm>
#include <utility>

namespace tandem::model {

void Findings::add(const std::string& kind, std::string item) {
  auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.kind == kind; });
  if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{.kind = kind});
  if (++group->count <= kItemsMax) group->items.push_back(std::move(item));
}

std::string Findings::text() const {
  std::string text;
  for (const Group& group : groups_) {
    if (!text.empty()) text += "; ";
    text += group.kind + " (" + std::to_string(group.count) + "): ";
    for (size_t i = 0; i < group.items.size(); ++i) text += (i == 0 ? "" : ", ") + group.items[i];
    if (group.count > group.items.size()) {
      text += ", ... and " + std::to_string(group.count - group.items.size()) + " more";
    }
  }
  return text;
}

}  // namespace tandem::model
