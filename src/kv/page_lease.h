#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace tandem::kv {

class CacheManager;

/// Pages that a peer may still touch, whatever becomes of their sequence: those of a source until
/// they are delivered (CacheManager::lease), those of a cancelled import (CacheManager::quarantine)
/// or of one that arrived (CacheManager::hold) until no write can land any more. Nobody else gets
/// them before. Gives them back when destroyed, so it must not outlive its manager. Empty at first,
/// and again after release.
class PageLease {
 public:
  PageLease() = default;
  PageLease(PageLease&& source) noexcept;
  PageLease& operator=(PageLease&& source) noexcept;
  ~PageLease();

  std::span<const PageId> pages() const { return pages_; }

 private:
  friend CacheManager;
  void swap(PageLease& other) noexcept;

  CacheManager* manager_ = nullptr;  // set from lease or quarantine to release
  std::vector<PageId> pages_;
  bool is_quarantine_ = false;
};

}  // namespace tandem::kv
