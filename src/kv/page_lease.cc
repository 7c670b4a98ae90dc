#include "kv/page_lease.h"

#include <utility>

#include "kv/cache_manager.h"

namespace tandem::kv {

PageLease::PageLease(PageLease&& source) noexcept {
  swap(source);
}

PageLease& PageLease::operator=(PageLease&& source) noexcept {
  PageLease taken(std::move(source));
  swap(taken);  // what this lease had is given back by the destructor of `taken`
  return *this;
}

PageLease::~PageLease() {
  if (manager_ != nullptr) manager_->release(*this);
}

void PageLease::swap(PageLease& other) noexcept {
  std::swap(manager_, other.manager_);
  std::swap(pages_, other.pages_);
  std::swap(is_quarantine_, other.is_quarantine_);
}

}  // namespace tandem::kv
