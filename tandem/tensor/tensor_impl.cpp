// SPDX-License-Identifier: Apache-2.0
// Creating and freeing tensors. A block is a TensorImpl, its own Storage and up to 4 KB of data.
// Who frees it: a tensor that uses its own storage holds one reference to it, so the block is freed
// with the last reference to the storage (which may be a view's); a tensor that uses another
// block's storage frees its own block when it dies and drops one reference there.
#include "tandem/tensor/tensor_impl.h"

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "tandem/base/budget.h"
#include "tandem/tensor/allocator.h"
#include "tandem/tensor/block_internal.h"
#include "tandem/tensor/device_memory.h"

namespace tandem::detail {
namespace {

constexpr size_t kHead = (sizeof(TensorImpl) + 63) / 64 * 64;
constexpr size_t kEmbedded = 4096;  // largest data stored in the block itself

TensorImpl* block_of(Storage* s) {
  return reinterpret_cast<TensorImpl*>(reinterpret_cast<char*>(s) - offsetof(TensorImpl, own));
}

void free_block(TensorImpl* t) noexcept { deallocate(t, t->own.block_bytes); }

void free_buffer(Storage* s) { deallocate(s->data, s->nbytes); }
void free_device_buffer(Storage* s) {
  Budget::give_back(s->nbytes);
  deallocate(s->data, s->nbytes, s->device);
}

/// Elements of a shape of numbers; the head of every constructor, so one pass without division.
int64_t count_elements(const Shape& shape) {
  int64_t n = 1;
  bool odd = false;
  const int64_t* d = shape.data();
  for (int i = 0; i < shape.rank(); ++i) odd |= d[i] < 0 || __builtin_mul_overflow(n, d[i], &n);
  if (TD_UNLIKELY(odd)) {
    for (Dim x : shape)
      TD_CHECK(x.value() >= 0, Shape, "a tensor cannot have the shape {}: sizes are not negative",
               shape.to_string());
    n = shape.numel().value();
  }
  return n;
}

size_t count_bytes(int64_t n, DType dtype) {
  size_t bytes;
  TD_CHECK(!__builtin_mul_overflow(static_cast<size_t>(n), size_of(dtype), &bytes), Memory,
           "a tensor of {} {} elements is more than this machine can address", n, to_string(dtype));
  return bytes;
}

/// Bytes from the first to the last element of a strided layout.
size_t span_bytes(const Shape& shape, const Strides& strides, DType dtype) {
  int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i].raw() == 0) return 0;
    TD_ASSERT(strides[i] >= 0);
    int64_t step;
    const bool wide = __builtin_mul_overflow(shape[i].raw() - 1, strides[i], &step) ||
                      __builtin_add_overflow(last, step, &last);
    TD_CHECK(!wide, Memory, "a tensor of shape {} is more than this machine can address",
             shape.to_string());
  }
  return count_bytes(last + 1, dtype);
}

/// A block with its plain fields set; `own`, `storage`, `data`, `strides` and, away from the host,
/// kOnDevice are set by the caller.
TensorImpl* make_block(size_t bytes, const Shape& shape, DType dtype, Device device,
                       int64_t numel) {
  // Member by member: TensorImpl{} would clear 232 bytes (gcc: `rep stos`, 15 ns) and rewrite most
  // of them. Strides past the rank stay unset.
  TensorImpl* t = static_cast<TensorImpl*>(allocate(bytes));
  ::new (&t->refs) RefCount(1);
  t->dtype = dtype;
  t->flags = 0;
  t->device = device;
  t->out_index = 0;
  t->node = nullptr;
  t->storage = nullptr;
  t->data = nullptr;
  t->numel = numel;
  ::new (&t->shape) Shape(shape);
  ::new (&t->own) Storage{.device = device, .block_bytes = static_cast<uint32_t>(bytes)};
  return t;
}

void set_row_major(TensorImpl& t) {
  uint64_t step = 1;  // unsigned: see contiguous_strides
  const int64_t* d = t.shape.data();
  for (int i = t.shape.rank() - 1; i >= 0; --i) {
    t.strides[i] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(d[i] > 1 ? d[i] : 1);
  }
  t.flags |= kContiguous;
}

// The bytes of a tensor that do not lie in its block.
TD_NOINLINE void allocate_apart(TensorImpl* t) {
  const bool host = is_host(t->device);
  try {
    if (!host) Budget::take(t->own.nbytes);
    t->own.data = host ? allocate(t->own.nbytes) : allocate(t->own.nbytes, t->device);
  } catch (...) {
    free_block(t);
    throw;
  }
  t->own.free_data = host ? free_buffer : free_device_buffer;
  if (!host) t->flags |= kOnDevice;
}

}  // namespace

TensorImpl* new_tensor(const Shape& shape, DType dtype, Device device, const Strides* strides) {
  const int64_t n = count_elements(shape);
  const size_t nbytes =
      TD_LIKELY(strides == nullptr) ? count_bytes(n, dtype) : span_bytes(shape, *strides, dtype);
  const bool embedded = nbytes <= kEmbedded && is_host(device);
  TensorImpl* t = make_block(embedded ? kHead + nbytes : kHead, shape, dtype, device, n);
  t->own.nbytes = nbytes;
  t->storage = &t->own;
  if (TD_LIKELY(embedded))
    t->own.data = reinterpret_cast<char*>(t) + kHead;
  else
    allocate_apart(t);
  t->data = t->own.data;
  if (TD_LIKELY(strides == nullptr)) {
    set_row_major(*t);
  } else {
    t->strides = *strides;
    update_contiguous(*t);
  }
  return t;
}

TensorImpl* new_view(const TensorImpl& base, const Shape& shape, const Strides& strides, void* data,
                     DType dtype) {
  TD_ASSERT(base.storage != nullptr);
  TensorImpl* t = make_block(kHead, shape, dtype, base.device, count_elements(shape));
  base.storage->refs.add();
  t->storage = base.storage;
  t->data = data;
  t->strides = strides;
  t->flags = base.flags & kOnDevice;
  update_contiguous(*t);
  return t;
}

void trim_block(const TensorImpl& t) {
  constexpr uintptr_t kPage = 4096;
  constexpr size_t kLarge = 1 << 20;  // from here on blocks are mapped
  if (t.storage != &t.own || t.own.free_data != free_buffer || t.own.nbytes < kLarge) return;
  const auto begin = reinterpret_cast<uintptr_t>(t.own.data);
  const uintptr_t first = (begin + t.own.nbytes + kPage - 1) / kPage * kPage;
  const uintptr_t end = begin + block_bytes(t.own.nbytes);
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

TensorImpl* new_external(const Shape& shape, DType dtype, void* data, bool writable,
                         void (*free_data)(Storage*), void* owner) {
  const int64_t n = count_elements(shape);
  const size_t nbytes = count_bytes(n, dtype);
  TensorImpl* t = make_block(kHead, shape, dtype, cpu, n);
  t->own.writable = writable;
  t->own.nbytes = nbytes;
  t->own.data = data;
  t->own.free_data = free_data;
  t->own.owner = owner;
  t->storage = &t->own;
  t->data = data;
  set_row_major(*t);
  return t;
}

TensorImpl* new_symbolic(const Shape& shape, DType dtype, Device device) {
  const bool open = shape.is_symbolic();
  // Symbolic sizes have no count and no strides; both throw when requested.
  TensorImpl* t = make_block(kHead, shape, dtype, device, open ? -1 : count_elements(shape));
  t->flags = kSymbolic | kContiguous | (is_host(device) ? 0 : kOnDevice);
  if (!open) set_row_major(*t);
  return t;
}

void drop_storage(Storage* s) noexcept {
  if (!s->refs.drop()) return;
  if (s->free_data) s->free_data(s);
  free_block(block_of(s));
}

void TensorImpl::destroy_tensor(TensorImpl* t) noexcept {
  if (t->node) t->node->drop_ref();
  Storage* s = t->storage;
  if (s != &t->own) free_block(t);  // only `t` used this block
  if (s) drop_storage(s);
}

void update_contiguous(TensorImpl& t) {
  bool dense = true;
  uint64_t step = 1;
  for (int i = t.shape.rank() - 1; i >= 0 && t.numel != 0; --i) {
    const int64_t d = t.shape[i].raw();
    if (d == 1) continue;
    if (t.strides[i] != static_cast<int64_t>(step)) {
      dense = false;
      break;
    }
    step *= static_cast<uint64_t>(d);
  }
  t.flags = static_cast<uint8_t>(dense ? t.flags | kContiguous : t.flags & ~kContiguous);
}

}  // namespace tandem::detail
