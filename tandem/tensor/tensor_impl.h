// SPDX-License-Identifier: Apache-2.0
// What a Tensor handle points to. One block contains the header, its own Storage and, for a small
// tensor, the data; a view points to another block's Storage. The block is freed when neither its
// tensor nor its storage is held. `node` is the producer on the tape or in a trace.
#pragma once

#include "tandem/base/intrusive.h"
#include "tandem/tensor/device.h"
#include "tandem/tensor/dtype.h"
#include "tandem/tensor/format.h"
#include "tandem/tensor/shape.h"

namespace tandem::detail {

/// Head of a tape node; the graph room defines the rest and how to free it.
struct NodeBase {
  RefCount refs{1};
  void (*destroy)(NodeBase*) = nullptr;
  void add_ref() { refs.add(); }
  void drop_ref() {
    if (refs.drop()) destroy(this);
  }
};

/// Bytes that tensors share. `free_data` returns them; embedded data goes with the block.
struct Storage {
  RefCount refs{1};
  bool writable = true;  ///< false for mapped files and borrowed memory: never written in place
  Device device{};
  uint32_t block_bytes = 0;  ///< size of the block that contains this Storage
  size_t nbytes = 0;
  void* data = nullptr;
  void (*free_data)(Storage*) = nullptr;
  void* owner = nullptr;  ///< for use by free_data
};

enum TensorFlags : uint8_t {
  kRequiresGrad = 1,
  kSymbolic = 2,    ///< a value of a trace: it has a Spec and no data
  kContiguous = 4,  ///< row-major, dense
  kOnDevice = 8,    ///< its bytes lie where the host may not touch them (set with the device)
};

struct TensorImpl {
  RefCount refs{1};
  DType dtype = DType::f32;
  uint8_t flags = 0;
  Device device{};
  uint32_t out_index = 0;      ///< which output of `node`
  NodeBase* node = nullptr;    ///< counted; leaf, tape or trace node
  Storage* storage = nullptr;  ///< counted; null when symbolic
  void* data = nullptr;        ///< first element
  int64_t numel = 0;
  Shape shape;
  Strides strides;
  Storage own;  ///< used when storage == &own

  bool has(TensorFlags f) const { return flags & f; }
  void add_ref() { refs.add(); }
  void drop_ref() {
    if (refs.drop()) destroy_tensor(this);
  }
  /// True when nobody else can see this tensor's bytes: the buffer may be reused.
  bool donatable() const {
    return storage && refs.unique() && storage->refs.unique() && storage->writable;
  }

 private:
  TD_API static void destroy_tensor(TensorImpl* t) noexcept;
};

/// A dense tensor of uninitialised data with the given strides (nullptr: row-major). Throws
/// Unsupported for a device that this process does not have.
TD_API TensorImpl* new_tensor(const Shape& shape, DType dtype, Device device,
                              const Strides* strides = nullptr);
/// A tensor over `base`'s storage at `data` with another shape and strides.
TD_API TensorImpl* new_view(const TensorImpl& base, const Shape& shape, const Strides& strides,
                            void* data, DType dtype);
/// A tensor over external memory; `free_data(storage)` is called once at the end (may be null).
TD_API TensorImpl* new_external(const Shape& shape, DType dtype, void* data, bool writable,
                                void (*free_data)(Storage*), void* owner);
/// A value of a trace: shape and dtype, no data.
TD_API TensorImpl* new_symbolic(const Shape& shape, DType dtype, Device device);
/// Drop one reference to a storage; the last one releases the bytes and the block around them.
TD_API void drop_storage(Storage* s) noexcept;
/// Recompute kContiguous after shape or strides have changed.
TD_API void update_contiguous(TensorImpl& t);

}  // namespace tandem::detail
