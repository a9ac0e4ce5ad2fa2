// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/cells/absent.h"

#include <sys/mman.h>

#include <algorithm>
#include <unordered_map>

#include "tandem/base/error.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/trace.h"
#include "tandem/tensor/device_memory.h"

namespace tandem::detail {

/// Values of cells that are on another device.
struct AwayCells {
  static void bring(Cell& cell, const Tensor& absent);
};

namespace {

struct AbsentOwner {
  std::shared_ptr<SourceLink> link;
  Tensor away;  ///< on another device, where there is no link
};
struct RegionOwner {
  std::shared_ptr<SourceLink> link;
  uint64_t number = 0;
  bool filled = false;
  bool has_bytes = true;  ///< of a device: until it is emptied
};

std::atomic<int64_t> g_region_now{0}, g_region_peak{0};
std::atomic<uint64_t> g_regions{0};

void count_region(int64_t bytes) {
  const int64_t now = g_region_now += bytes;
  int64_t peak = g_region_peak.load();
  while (now > peak && !g_region_peak.compare_exchange_weak(peak, now)) {}
}

void free_absent(Storage* s) {
  delete static_cast<AbsentOwner*>(s->owner);
  --absent_count();
}

void free_region(Storage* s) {
  auto* owner = static_cast<RegionOwner*>(s->owner);
  if (owner->filled) count_region(-static_cast<int64_t>(s->nbytes));
  ::munmap(s->data, s->nbytes);
  delete owner;
  --absent_count();
}

void free_device_region(Storage* s) {
  auto* owner = static_cast<RegionOwner*>(s->owner);
  if (owner->has_bytes) deallocate(s->data, s->nbytes, s->device);
  delete owner;
  --absent_count();
}

const Storage* region_of(const Tensor& t) {
  if (!t.defined() || !t.impl()->storage) return nullptr;
  const auto free_data = t.impl()->storage->free_data;
  return free_data == &free_region || free_data == &free_device_region ? t.impl()->storage
                                                                       : nullptr;
}

// Memory that somebody else owns, as a value of that device.
void place_on(TensorImpl& t, Device device) {
  t.device = t.storage->device = device;
  if (!is_host(device)) t.flags |= kOnDevice;
}

// Few cells have a role, and those only while a net is sharded.
struct ShardRoles {
  struct Entry {
    ShardRole role;
    std::shared_ptr<SourceLink> link;
  };
  std::mutex lock;
  std::unordered_map<const Cell*, Entry> of;
  std::atomic<size_t> count{0};
  static ShardRoles& all() {
    static ShardRoles roles;
    return roles;
  }
};

// All bits set: NaN in every floating dtype.
alignas(16) unsigned char g_nothing[16] = {255, 255, 255, 255, 255, 255, 255, 255,
                                           255, 255, 255, 255, 255, 255, 255, 255};

// Of that shape, dtype and device, without elements.
Tensor without_elements(const Spec& spec, AbsentOwner* owner) {
  ++absent_count();
  const Tensor one(Ref<TensorImpl>::adopt(
      new_external(Shape(), spec.dtype, g_nothing, false, &free_absent, owner)));
  place_on(*one.impl(), spec.device);
  return Tensor(Ref<TensorImpl>::adopt(
      new_view(*one.impl(), spec.shape, Strides(), one.impl()->data, spec.dtype)));
}

}  // namespace

std::atomic<int64_t>& absent_count() {
  static std::atomic<int64_t> n{0};
  return n;
}

void set_absent(Cell& cell, const std::shared_ptr<SourceLink>& link) {
  cell.replace(without_elements(cell.spec(), new AbsentOwner{link, {}}));
}

Tensor make_away(Tensor value) {
  const Spec spec(value.dtype(), value.shape());
  return without_elements(spec, new AbsentOwner{nullptr, std::move(value)});
}

Tensor* away_value(const Tensor& absent) {
  if (!any_absent() || !is_absent(absent)) return nullptr;
  auto* owner = static_cast<AbsentOwner*>(absent.impl()->storage->owner);
  return owner->away.defined() ? &owner->away : nullptr;
}

void set_shard_role(const Cell& cell, ShardRole role, std::shared_ptr<SourceLink> link) {
  ShardRoles& roles = ShardRoles::all();
  const std::lock_guard hold(roles.lock);
  if (role == ShardRole::none)
    roles.of.erase(&cell);
  else
    roles.of[&cell] = {role, std::move(link)};
  roles.count = roles.of.size();
}

ShardRole shard_role(const Cell& cell) {
  ShardRoles& roles = ShardRoles::all();
  if (roles.count.load(std::memory_order_relaxed) == 0) return ShardRole::none;
  const std::lock_guard hold(roles.lock);
  const auto at = roles.of.find(&cell);
  return at == roles.of.end() ? ShardRole::none : at->second.role;
}

Tensor ValueSource::bring_by_rows(const Cell&, Trace&) { return {}; }

Tensor bring_by_rows(const Cell& cell, Trace& trace) {
  ShardRoles& roles = ShardRoles::all();
  if (roles.count.load(std::memory_order_relaxed) == 0) return {};
  std::shared_ptr<SourceLink> link;
  {
    const std::lock_guard hold(roles.lock);
    if (const auto at = roles.of.find(&cell); at != roles.of.end()) link = at->second.link;
  }
  if (!link || !link->source) return {};
  Tensor v = link->source->bring_by_rows(cell, trace);
  auto& all = trace.graph->sources;
  if (v.defined() && std::find(all.begin(), all.end(), link) == all.end()) all.push_back(link);
  return v;
}

void tell_sources(const Graph& graph) {
  for (const std::shared_ptr<SourceLink>& link : graph.sources) {
    TD_CHECK(link->source, Value,
             "a compiled step gathers parameters whose DataParallel is gone\nKeep it as long as "
             "the step is used.");
    link->source->before_run();
  }
}

bool is_absent(const Tensor& v) {
  return v.defined() && v.impl()->storage && v.impl()->storage->free_data == &free_absent;
}

// The lock is held until the value is here: a program may write it in the meantime.
void AwayCells::bring(Cell& cell, const Tensor& absent) {
  std::lock_guard hold(cell.lock_);
  if (cell.value_.impl()->storage != absent.impl()->storage) return;
  Tensor home(host_copy(*away_value(absent)->impl()));
  const uint64_t generation = cell.generation_;
  cell.adopt(std::move(home));
  cell.generation_ = generation;
}

void bring_value(const Cell& cell, const Tensor& absent) {
  if (away_value(absent)) return AwayCells::bring(const_cast<Cell&>(cell), absent);
  const std::shared_ptr<SourceLink> link =
      static_cast<const AbsentOwner*>(absent.impl()->storage->owner)->link;
  TD_CHECK(link->source, Value,
           "the value of '{}' lies on other ranks, and its DataParallel is gone\nKeep it as long "
           "as the net is used.",
           cell.name);
  const DeferredInitGuard now(false);
  link->source->bring(cell);
}

namespace {
Tensor new_region(void* data, size_t bytes, int64_t elements, DType dtype, Device device,
                  const std::shared_ptr<SourceLink>& link) {
  ++absent_count();
  Tensor t(Ref<TensorImpl>::adopt(new_external(Shape{elements}, dtype, data, true,
                                               is_host(device) ? &free_region : &free_device_region,
                                               new RegionOwner{link, ++g_regions})));
  t.impl()->storage->nbytes = bytes;
  place_on(*t.impl(), device);
  return t;
}
}  // namespace

Tensor make_region(int64_t elements, DType dtype, const std::shared_ptr<SourceLink>& link,
                   Device device) {
  const size_t bytes = std::max<size_t>(1, static_cast<size_t>(elements) * size_of(dtype));
  if (!is_host(device))
    return new_region(allocate(bytes, device), bytes, elements, dtype, device, link);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TD_CHECK(data != MAP_FAILED, Memory, "there is no memory for {} bytes of parameters", bytes);
  return new_region(data, bytes, elements, dtype, device, link);
}

uint64_t region_number(const Tensor& region) {
  return static_cast<const RegionOwner*>(region_of(region)->owner)->number;
}

bool is_region(const Tensor& t) { return region_of(t) != nullptr; }

void empty_region(const Tensor& region) {
  const Storage* s = region_of(region);
  auto* owner = static_cast<RegionOwner*>(s->owner);
  const bool filled = std::exchange(owner->filled, false);
  if (!is_host(s->device)) {
    if (std::exchange(owner->has_bytes, false)) deallocate(s->data, s->nbytes, s->device);
    return;
  }
  if (!filled) return;
  ::madvise(s->data, s->nbytes, MADV_DONTNEED);
  count_region(-static_cast<int64_t>(s->nbytes));
}

void mark_filled(const Tensor& region) {
  const Storage* s = region_of(region);
  auto* owner = static_cast<RegionOwner*>(s->owner);
  if (!std::exchange(owner->filled, true) && is_host(s->device))
    count_region(static_cast<int64_t>(s->nbytes));
}

RegionBytes region_bytes() { return {g_region_now, g_region_peak}; }
void reset_region_peak() { g_region_peak = g_region_now.load(); }

namespace {
// The same view of another region.
Tensor moved_view(const Tensor& view, const Tensor& to) {
  const TensorImpl& v = *view.impl();
  const auto offset = static_cast<const char*>(v.data) - static_cast<const char*>(v.storage->data);
  Tensor out(Ref<TensorImpl>::adopt(new_view(
      *to.impl(), v.shape, v.strides, static_cast<char*>(to.impl()->data) + offset, v.dtype)));
  if (Node* n = node_of(view)) set_node(out, Ref<Node>::share(n), v.out_index);
  out.impl()->flags |= v.flags & kRequiresGrad;
  return out;
}

void bring_region(Tensor& value) {
  const Storage* s = region_of(value);
  if (!s) return;
  const auto* owner = static_cast<const RegionOwner*>(s->owner);
  if (owner->filled) return;
  const std::shared_ptr<SourceLink> link = owner->link;
  TD_CHECK(link->source, Value,
           "backward() reads parameters that lie on other ranks, and their DataParallel is gone");
  const Tensor now = link->source->refill(value);
  if (now.impl()->storage != s) value = moved_view(value, now);
}
}  // namespace

void bring_saved(Node& node) {
  for (NodeInput& i : node.in) bring_region(i.value);
  for (NodeOutput& o : node.out) bring_region(o.saved);
}

}  // namespace tandem::detail
