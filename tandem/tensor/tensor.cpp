// SPDX-License-Identifier: Apache-2.0
// The methods of Tensor that only read or copy bytes: sizes, items, pointers, conversion to
// vectors. Everything that computes is defined with the ops. Errors carry the caller's line.
#include "tandem/tensor/tensor.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "tandem/tensor/device_memory.h"
#include "tandem/tensor/dry_memory.h"
#include "tandem/tensor/lazy.h"
#include "tandem/tensor/strided.h"

namespace tandem {
namespace {

[[noreturn]] TD_COLD void fail_at(ErrorKind kind, const char* op, SourceLocation loc,
                                  std::string message, std::string hint) {
  throw Error(kind, std::move(message), std::move(hint), op, loc, "");
}

// A value of a trace is read: it is computed now, or this is an error.
TD_COLD void read_traced(detail::TensorImpl& t, const char* op, SourceLocation loc) {
  if (detail::make_readable(t, loc)) return;
  fail_at(ErrorKind::Unsupported, op, loc, "a value inside a trace cannot be read",
          "Use where() or cond(), or read it outside.");
}

// The one element of a tensor, wherever it lies.
void read_one(const detail::TensorImpl& t, void* out, DType dtype) {
  if (TD_UNLIKELY(t.has(detail::kOnDevice))) {
    alignas(8) char bytes[8];
    detail::copy_bytes(bytes, cpu, t.data, t.device, size_of(t.dtype));
    detail::convert_elements(bytes, t.dtype, out, dtype, 1);
    return;
  }
  detail::convert_elements(t.data, t.dtype, out, dtype, 1);
}

bool without_bytes(const detail::TensorImpl& t) {
  return detail::is_dry(t) || detail::deferred_of(t) != nullptr;
}

// A value of a dry run, or one that is made when it is read.
TD_COLD void read_without_bytes(detail::TensorImpl& t, const char* op, SourceLocation loc) try {
  detail::check_has_bytes(t, "reading");
} catch (const Error& e) {
  throw Error(e.kind(), e.message(), e.hint(), op, loc, "");
}

}  // namespace

namespace detail {
namespace {
void free_deferred(Storage* s) { delete static_cast<Deferred*>(s->owner); }
}  // namespace

// The storage has a block of its own, which stays while views are given other bytes.
Tensor make_deferred(const Shape& shape, DType dtype, Deferred* owner) {
  alignas(16) static unsigned char nothing[16];
  const Ref<TensorImpl> base = Ref<TensorImpl>::adopt(
      new_external(Shape(), dtype, nothing, /*writable=*/false, &free_deferred, owner));
  return Tensor(Ref<TensorImpl>::adopt(new_view(*base, shape, Strides(), nothing, dtype)));
}

const Deferred* deferred_of(const TensorImpl& t) {
  if (!t.storage || t.storage->free_data != &free_deferred) return nullptr;
  return static_cast<const Deferred*>(t.storage->owner);
}

void compute_in_place(TensorImpl& t) {
  const Tensor value = deferred_of(t)->compute();
  const TensorImpl& from = *value.impl();
  TD_ASSERT(from.shape == t.shape && from.dtype == t.dtype);
  from.storage->refs.add();
  Storage* before = std::exchange(t.storage, from.storage);
  t.data = from.data;
  t.strides = from.strides;
  update_contiguous(t);
  drop_storage(before);
}

static std::atomic<Materializer> g_materializer{nullptr};
void set_materializer(Materializer m) { g_materializer = m; }
bool make_readable(TensorImpl& t, SourceLocation loc) {
  if (TD_UNLIKELY(deferred_of(t) != nullptr)) compute_in_place(t);
  if (!t.has(kSymbolic)) return true;
  Materializer m = g_materializer.load();
  return m && m(t, loc);
}
}  // namespace detail

void Tensor::throw_undefined() const {
  TD_FAIL(Value,
          "this Tensor is empty: it was never assigned, or it was moved from\n"
          "Ask defined() first, or give it a value.");
}

Dim Tensor::shape(int64_t d, SourceLocation loc) const {
  const detail::TensorImpl& t = get();
  const int rank = t.shape.rank();
  if (TD_LIKELY(d >= 0 && d < rank)) return t.shape[static_cast<int>(d)];
  try {
    return t.shape[normalize_dim(d, rank)];
  } catch (const Error& e) {
    throw Error(e.kind(), e.message(), e.hint(), "size", loc.is_user() ? loc : SourceLocation{},
                "");
  }
}

int64_t Tensor::stride(int64_t d) const {
  const detail::TensorImpl& t = get();
  const int i = normalize_dim(d, t.shape.rank());
  TD_CHECK(!t.shape.is_symbolic(), Shape, "a tensor of shape {} has no strides yet",
           t.shape.to_string());
  return t.strides[i];
}

int64_t Tensor::numel() const {
  const detail::TensorImpl& t = get();
  TD_CHECK(t.numel >= 0, Shape,
           "the number of elements of shape {} is not known inside a trace\n"
           "Use shape().numel(), which gives a Dim.",
           t.shape.to_string());
  return t.numel;
}

void Tensor::read_item(void* out, DType dtype, SourceLocation loc) const {
  const detail::TensorImpl& t = get();
  if (TD_UNLIKELY(t.has(detail::kSymbolic))) read_traced(*impl_, "item", loc);
  if (TD_UNLIKELY(t.numel != 1))
    fail_at(ErrorKind::Shape, "item", loc,
            fmt::format("expected a tensor of one element, got shape {}", t.shape.to_string()),
            "Reduce it first, or read all elements with to_vector<T>().");
  if (TD_UNLIKELY(without_bytes(t))) read_without_bytes(*impl_, "item", loc);
  read_one(t, out, dtype);
}

const void* Tensor::checked_data(DType dtype, SourceLocation loc) const {
  const detail::TensorImpl& t = get();
  if (TD_UNLIKELY(t.has(detail::kSymbolic))) read_traced(*impl_, "data", loc);
  if (TD_UNLIKELY(t.dtype != dtype))
    fail_at(
        ErrorKind::DType, "data", loc,
        fmt::format("expected {} elements, the tensor holds {}", to_string(dtype),
                    to_string(t.dtype)),
        fmt::format("Convert with to({}), or ask for {}.", to_string(dtype), to_string(t.dtype)));
  if (TD_UNLIKELY(without_bytes(t))) read_without_bytes(*impl_, "data", loc);
  if (TD_UNLIKELY(t.has(detail::kOnDevice)))
    fail_at(ErrorKind::Device, "data", loc,
            fmt::format("requires memory that the host may read, the tensor is on {}",
                        to_string(t.device)),
            "Copy it to the host with cpu() and hold the copy while you read it.");
  return t.data;
}

void* Tensor::unshared_data(DType dtype, SourceLocation loc) {
  checked_data(dtype, loc);
  detail::TensorImpl& t = *impl_;
  if (t.has(detail::kRequiresGrad) || t.node)
    fail_at(ErrorKind::Value, "mutable_data", loc,
            "a tensor that is part of a gradient cannot be written to",
            "Write to detach(), or write before requires_grad_().");
  if (t.donatable() && t.has(detail::kContiguous)) return t.data;
  Ref<detail::TensorImpl> fresh =
      Ref<detail::TensorImpl>::adopt(detail::new_tensor(t.shape, t.dtype, t.device));
  detail::copy_row_major(t, fresh->data, t.dtype);
  impl_ = std::move(fresh);
  return impl_->data;
}

void Tensor::copy_out(void* out, DType dtype, SourceLocation loc) const {
  const detail::TensorImpl& t = get();
  if (TD_UNLIKELY(t.has(detail::kSymbolic))) read_traced(*impl_, "to_vector", loc);
  if (TD_UNLIKELY(without_bytes(t))) read_without_bytes(*impl_, "to_vector", loc);
  detail::copy_row_major(t, out, dtype);
}

Tensor::operator bool() const {
  const detail::TensorImpl& t = get();
  if (t.has(detail::kSymbolic)) read_traced(*impl_, "bool", SourceLocation{});
  if (t.numel != 1)
    fail_at(ErrorKind::Shape, "bool", SourceLocation{},
            fmt::format("the truth of a tensor of shape {} is ambiguous", t.shape.to_string()),
            "Use any() or all().");
  if (TD_UNLIKELY(without_bytes(t))) read_without_bytes(*impl_, "bool", SourceLocation{});
  bool v;
  read_one(t, &v, DType::b8);
  return v;
}

Tensor from_blob(const void* data, Shape shape, DType dtype) {
  TD_CHECK(!shape.is_symbolic(), Shape, "from_blob: the shape must be numbers, got {}",
           shape.to_string());
  // Never written: the storage is marked read-only, so every writer copies first.
  Ref<detail::TensorImpl> t = Ref<detail::TensorImpl>::adopt(detail::new_external(
      shape, dtype, const_cast<void*>(data), /*writable=*/false, nullptr, nullptr));
  TD_CHECK(data != nullptr || t->numel == 0, Value, "from_blob: the data pointer is null, shape {}",
           shape.to_string());
  return Tensor(std::move(t));
}

}  // namespace tandem
