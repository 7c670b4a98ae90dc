#include "model/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/list_text.h"

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
    text += fmt::format("{} ({}): {}", group.kind, group.count, list_text(group.items));
    if (group.count > group.items.size()) {
      text += fmt::format(", ... and {} more", group.count - group.items.size());
    }
  }
  return text;
}

}  // namespace tandem::model
