// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/dlpack.h"

#include <fmt/format.h>

#include <cstddef>
#include <memory>

#include "tandem/tensor/blob.h"
#include "tandem/tensor/dry_memory.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

// The layouts of the C ABI on the machines Tandem runs on.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

constexpr uint32_t kMajor = 1, kMinor = 0;

struct DlType {
  DType dtype;
  uint8_t code, bits;
};
constexpr DlType kDlTypes[] = {{DType::f64, kDLFloat, 64}, {DType::f32, kDLFloat, 32},
                               {DType::f16, kDLFloat, 16}, {DType::bf16, kDLBfloat, 16},
                               {DType::i64, kDLInt, 64},   {DType::i32, kDLInt, 32},
                               {DType::i16, kDLInt, 16},   {DType::i8, kDLInt, 8},
                               {DType::u8, kDLUInt, 8},    {DType::b8, kDLBool, 8}};

DType dtype_of_dl(const DLDataType& t) {
  TD_CHECK(t.lanes == 1, DType, "from_dlpack: elements of {} lanes are not supported", t.lanes);
  for (const DlType& c : kDlTypes)
    if (c.code == t.code && c.bits == t.bits) return c.dtype;
  constexpr const char* kKinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const std::string kind = t.code < 7 ? kKinds[t.code] : fmt::format("code {}, ", t.code);
  TD_FAIL(DType, "from_dlpack: elements of {}{} are not supported\nConvert them before exporting.",
          kind, t.bits);
}

void check_device(const DLDevice& d) {
  if (d.device_type == kDLCPU || d.device_type == kDLCUDAHost) return;
  const char* hint = "Copy it to the CPU before exporting.";
  if (d.device_type == kDLCUDA || d.device_type == kDLCUDAManaged)
    TD_FAIL(Device, "from_dlpack: the tensor is on cuda:{}, expected cpu\n{}", d.device_id, hint);
  TD_FAIL(Device, "from_dlpack: the tensor is on a device of type {}, expected cpu\n{}",
          d.device_type, hint);
}

Tensor take(const DLTensor& t, void (*release)(void*), void* state) {
  check_device(t.device);
  const DType dtype = dtype_of_dl(t.dtype);
  TD_CHECK(t.ndim >= 0 && t.ndim <= kMaxRank, Shape,
           "from_dlpack: the tensor has {} dimensions, 0 to {} are possible", t.ndim, kMaxRank);
  TD_CHECK(t.ndim == 0 || t.shape, Value, "from_dlpack: the shape pointer is null");
  const auto n = static_cast<size_t>(t.ndim);
  bool empty = false;
  for (size_t i = 0; i < n; ++i) {
    // Dims below 2^62 only: larger values could not be told from other Dims.
    TD_CHECK(t.shape[i] >= 0 && t.shape[i] < int64_t{1} << 62, Shape,
             "from_dlpack: dimension {} has the size {}", i, t.shape[i]);
    empty |= t.shape[i] == 0;
  }
  const Shape shape(std::span<const int64_t>(t.shape, n));
  IntList strides;
  if (t.strides)
    for (size_t i = 0; i < n; ++i) {
      TD_CHECK(t.strides[i] >= 0 || empty || t.shape[i] == 1, Shape,
               "from_dlpack: dimension {} has the stride {}, negative ones are not supported\nCopy "
               "the array on the other side.",
               i, t.strides[i]);
      // The strides of dimensions that are never walked may have any value.
      const bool walked = !empty && t.shape[i] > 1;
      TD_CHECK(!walked || t.strides[i] < int64_t{1} << 59, Shape,
               "from_dlpack: dimension {} has the stride {}", i, t.strides[i]);
      strides.push_back(walked ? t.strides[i] : 1);
    }
  TD_CHECK(t.data || empty, Value, "from_dlpack: the data pointer is null, shape {}",
           shape.to_string());
  const char* data = t.data ? static_cast<const char*>(t.data) + t.byte_offset : nullptr;
  // Everything is checked before ownership passes: a rejected tensor stays the caller's.
  if (dtype == DType::b8) {
    const Tensor bytes = detail::lend(data, shape, t.strides ? &strides : nullptr, DType::u8,
                                      nullptr, nullptr, "from_dlpack");
    std::vector<uint8_t> values(static_cast<size_t>(bytes.numel()));
    detail::copy_row_major(*bytes.impl(), values.data(), DType::u8);
    for (size_t i = 0; i < values.size(); ++i)
      TD_CHECK(values[i] <= 1, Value, "from_dlpack: element {} of a bool tensor is the byte {}", i,
               values[i]);
  }
  return detail::lend(data, shape, t.strides ? &strides : nullptr, dtype, release, state,
                      "from_dlpack");
}

/// What an exported tensor owns: the handle, and its sizes and strides in the ABI's layout.
template <class Managed>
struct Export {
  Tensor tensor;
  int64_t shape[kMaxRank], strides[kMaxRank];
  Managed managed{};
};

/// The export of `x`; `writable` receives whether the consumer may write.
template <class Managed>
Export<Managed>* make_export(Tensor x, bool copy, bool& writable) {
  TD_CHECK(x.defined(), Value, "to_dlpack: the tensor was never given a value");
  TD_CHECK(!x.is_symbolic(), Unsupported, "to_dlpack: a value inside a trace has no data");
  TD_CHECK(!x.requires_grad() && !x.impl()->node, Value,
           "to_dlpack: the tensor is part of a gradient, which would be lost\nGive x.detach().");
  TD_CHECK(is_host(x.device()), Unsupported,
           "to_dlpack: the tensor is on {}\nGive its copy on the host, x.cpu().",
           to_string(x.device()));
  detail::check_has_bytes(*x.impl(), "to_dlpack");
  if (copy) {
    Tensor own(Ref<detail::TensorImpl>::adopt(detail::new_tensor(x.shape(), x.dtype(), cpu)));
    detail::copy_row_major(*x.impl(), own.impl()->data, x.dtype());
    x = std::move(own);
  }
  writable = x.impl()->donatable();
  auto e = std::make_unique<Export<Managed>>();
  const int rank = x.dim();
  for (int i = 0; i < rank; ++i) {
    e->shape[i] = x.sizes()[static_cast<size_t>(i)];
    e->strides[i] = x.strides()[static_cast<size_t>(i)];
  }
  const DlType* code = kDlTypes;
  while (code->dtype != x.dtype()) ++code;
  DLTensor& t = e->managed.dl_tensor;
  t = {.data = x.impl()->data,
       .device = {kDLCPU, 0},
       .ndim = rank,
       .dtype = {code->code, code->bits, 1},
       .shape = e->shape,
       .strides = e->strides,
       .byte_offset = 0};
  e->managed.manager_ctx = e.get();
  e->managed.deleter = [](Managed* self) {
    delete static_cast<Export<Managed>*>(self->manager_ctx);
  };
  e->tensor = std::move(x);
  return e.release();
}

}  // namespace

Tensor from_dlpack(const DLTensor& tensor, void (*release)(void*), void* state) {
  return take(tensor, release, state);
}

void check_dlpack_version(DLPackVersion version) {
  TD_CHECK(version.major == kMajor, Unsupported,
           "from_dlpack: the tensor is of DLPack {}.{}, this is DLPack {}.{}", version.major,
           version.minor, kMajor, kMinor);
}

Tensor from_dlpack(DLManagedTensor* managed) { return from_dlpack<DLManagedTensor>(managed); }
Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  return from_dlpack<DLManagedTensorVersioned>(managed);
}

DLManagedTensorVersioned* to_dlpack_versioned(Tensor x, ToDLPackOptions options) {
  bool writable;
  auto* e = make_export<DLManagedTensorVersioned>(std::move(x), options.copy, writable);
  e->managed.version = {kMajor, kMinor};
  e->managed.flags = (writable ? 0 : kDLPackReadOnly) | (options.copy ? kDLPackIsCopied : 0);
  return &e->managed;
}

DLManagedTensor* to_dlpack(Tensor x, ToDLPackOptions options) {
  bool writable;
  return &make_export<DLManagedTensor>(std::move(x), options.copy, writable)->managed;
}

}  // namespace tandem::io
