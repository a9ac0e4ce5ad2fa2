// SPDX-License-Identifier: Apache-2.0
#include "tandem/tensor/dry_memory.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/tensor/allocator.h"
#include "tandem/tensor/block_internal.h"
#include "tandem/tensor/lazy.h"

namespace tandem {
namespace {

// The allocator's sizes (allocator.cpp): blocks up to kDrySmall are cut from a slab.
constexpr size_t kDrySmall = 64 << 10;
constexpr int64_t kDrySlab = 256 << 10;

thread_local DryMemory* t_ledger = nullptr;

// The address of dry storage: no page is mapped there.
void* nowhere() { return reinterpret_cast<void*>(uintptr_t{4096}); }

struct Owner {
  Ref<DryMemory> ledger;
  int32_t block;
};
void free_dry(detail::Storage* s) {
  auto* o = static_cast<Owner*>(s->owner);
  o->ledger->give_back(o->block);
  delete o;
}

size_t small_class(int64_t rounded) { return static_cast<size_t>(rounded) / 64; }

}  // namespace

DryMemory::DryMemory() : host_start_(allocator_stats().in_use) {}

int64_t DryMemory::in_use() const {
  const int64_t slabs = (slab_used_ + kDrySlab - 1) / kDrySlab * kDrySlab;
  return large_ + slabs + std::max<int64_t>(0, allocator_stats().in_use - host_start_);
}

void DryMemory::reset_peak() {
  peak_ = in_use();
  peak_event_ = static_cast<int64_t>(events_.size()) - 1;
}

void DryMemory::note(int32_t block, bool taken) {
  const int64_t host = std::max<int64_t>(0, allocator_stats().in_use - host_start_);
  const int64_t slabs = (slab_used_ + kDrySlab - 1) / kDrySlab * kDrySlab;
  events_.push_back({block, taken, phase, host, large_ + slabs});
  if (large_ + slabs + host > peak_) {
    peak_ = large_ + slabs + host;
    peak_event_ = static_cast<int64_t>(events_.size()) - 1;
  }
}

int32_t DryMemory::take(size_t bytes, DryUse use) {
  const auto rounded = static_cast<int64_t>(detail::block_bytes(bytes));
  const bool small = bytes <= kDrySmall;
  if (small) {
    const size_t c = small_class(rounded);
    if (idle_small_.size() <= c) idle_small_.resize(c + 1);
    if (idle_small_[c] > 0)
      --idle_small_[c];
    else
      slab_used_ += rounded;
  } else {
    large_ += rounded;
  }
  blocks_.push_back({static_cast<int64_t>(bytes), small ? 0 : rounded, use, phase, scope});
  const auto block = static_cast<int32_t>(blocks_.size()) - 1;
  note(block, true);
  return block;
}

void DryMemory::give_back(int32_t block) noexcept {
  const DryBlock& b = blocks_[static_cast<size_t>(block)];
  if (b.rounded == 0)
    ++idle_small_[small_class(
        static_cast<int64_t>(detail::block_bytes(static_cast<size_t>(b.bytes))))];
  else
    large_ -= b.rounded;
  note(block, false);
}

int32_t DryMemory::block_of(const detail::TensorImpl& t) {
  return detail::is_dry(t) ? static_cast<const Owner*>(t.storage->owner)->block : -1;
}

namespace detail {

DryMemory* dry_memory() { return t_ledger; }
void set_dry_memory(DryMemory* m) { t_ledger = m; }

bool is_dry(const TensorImpl& t) { return t.storage && t.storage->free_data == free_dry; }

TensorImpl* new_dry_tensor(const Shape& shape, DType dtype, Device device, const Strides* strides) {
  TD_ASSERT(t_ledger != nullptr);
  Dim n = shape.numel();  // with strides the span; kernels' layouts are dense, so it is the same
  TD_CHECK(n.raw() <= (int64_t{1} << 52), Memory, "a tensor of shape {} cannot be addressed",
           shape.to_string());
  TensorImpl* t = new_external(shape, dtype, nowhere(), true, nullptr, nullptr);
  t->device = device;
  t->own.device = device;
  auto* owner = new Owner{Ref<DryMemory>::share(t_ledger), 0};
  owner->block = t_ledger->take(static_cast<size_t>(n.value()) * size_of(dtype), DryUse::tensor);
  t->own.owner = owner;
  t->own.free_data = free_dry;
  if (strides) {
    t->strides = *strides;
    update_contiguous(*t);
  }
  return t;
}

void check_has_bytes(const TensorImpl& t, const char* what) {
  if (TD_UNLIKELY(deferred_of(t) != nullptr)) compute_in_place(const_cast<TensorImpl&>(t));
  TD_CHECK(!is_dry(t), Unsupported,
           "{}: a dry run has shapes and no values; {} {} was never computed\n"
           "Leave out what reads values, or run it without DryRunGuard.",
           what, to_string(t.dtype), t.shape.to_string());
}

}  // namespace detail
}  // namespace tandem
