// SPDX-License-Identifier: Apache-2.0
// The rows that move elements by a rule (copy, cat, pad, flip ...): their references say which
// strided copies and fills they are made of, and those are run here.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/run/array_walk.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::gpu {
namespace {

// What one kernel per size is kept under.
constexpr char kMovesCopy = 0, kMovesFill = 0;

DType word_of_size(size_t size) {
  return size == 1 ? DType::u8 : size == 2 ? DType::i16 : size == 4 ? DType::i32 : DType::i64;
}

// A strided array as a Walk sees it. Strides may be negative: `first` is the element that the
// lowest address is before the array's own.
struct Place {
  Array array;
  Address lowest = 0;
  int64_t first = 0;
  size_t bytes = 0;

  Place(void* data, const int64_t* shape, const int64_t* strides, int rank, size_t size) {
    array.data = data;
    array.shape = shape;
    array.strides = strides;
    array.rank = static_cast<uint8_t>(rank);
    array.dtype = word_of_size(size);
    array.numel = 1;
    int64_t last = 0;
    for (int d = 0; d < rank; ++d) {
      array.numel *= shape[d];
      (strides[d] < 0 ? first : last) += (shape[d] - 1) * std::abs(strides[d]);
    }
    lowest = address_of(data) - static_cast<Address>(first) * size;
    bytes = static_cast<size_t>(first + last + 1) * size;
  }
};

KernelSource copy_source(const Walk& walk, DType word) {
  KernelSource k{.name = "strided_copy",
                 .parameters = {{Parameter::out, word, "y"},
                                {Parameter::in, word, "x"},
                                {Parameter::value, DType::i64, "ys"},
                                {Parameter::value, DType::i64, "xs"}}};
  walk.declare(k);
  k.body = walk.lines() + fmt::format("  y[ys + {}] = x[xs + {}];\n", walk.place(0), walk.place(1));
  return k;
}

KernelSource fill_source(const Walk& walk, DType word) {
  KernelSource k{.name = "fill",
                 .parameters = {{Parameter::out, word, "y"}, {Parameter::value, word, "value"}}};
  walk.declare(k);
  k.body = walk.lines() + fmt::format("  y[{}] = value;\n", walk.place(0));
  return k;
}

void argue_word(Arguments& a, const void* bits, size_t size) {
  int64_t v = 0;
  std::memcpy(&v, bits, size);
  switch (size) {
    case 1:
      a.value(static_cast<uint8_t>(v));
      return;
    case 2:
      a.value(static_cast<int16_t>(v));
      return;
    case 4:
      a.value(static_cast<int32_t>(v));
      return;
    default:
      a.value(v);
  }
}

class DeviceMover final : public detail::Mover {
 public:
  explicit DeviceMover(const KernelCall& c) : e_(engine_of(c.device)), stream_(c.stream) {}

  void copy(void* dst, const int64_t* dst_strides, const void* src, const int64_t* src_strides,
            const int64_t* shape, int rank, size_t size) override {
    const Place y(dst, shape, dst_strides, rank, size);
    const Place x(const_cast<void*>(src), shape, src_strides, rank, size);
    const Array* arrays[] = {&y.array, &x.array};
    const Walk walk(shape, rank, arrays, 2, 0);
    if (walk.place(0) == "i" && walk.place(1) == "i") {
      return e_.check(e_.context().copy(y.lowest, x.lowest, y.bytes, e_.stream(stream_)));
    }
    const KernelRef k = plain_kernel(e_, {&kMovesCopy, walk.ways(), walk.shape_key() << 8 | size},
                                     [&] { return copy_source(walk, y.array.dtype); });
    Arguments a;
    a.address(y.lowest, y.bytes).address(x.lowest, x.bytes).value(y.first).value(x.first);
    walk.argue(a);
    launch_each(e_, k, walk.count(), a, stream_);
  }

  void fill(const Array& y, Scalar value) override {
    const Array* arrays[] = {&y};
    const Walk walk = y.contiguous ? Walk(y.numel, arrays, 1) : Walk(y.shape, y.rank, arrays, 1, 0);
    const size_t size = size_of(y.dtype);
    const KernelRef k = plain_kernel(e_, {&kMovesFill, walk.ways(), walk.shape_key() << 8 | size},
                                     [&] { return fill_source(walk, word_of_size(size)); });
    Arguments a;
    argue_array(a, y);
    visit_dtype(y.dtype, [&](auto tag) {
      const auto v = detail::scalar_as<decltype(tag)>(value);
      argue_word(a, &v, sizeof v);
    });
    walk.argue(a);
    launch_each(e_, k, walk.count(), a, stream_);
  }

 private:
  Engine& e_;
  const Stream stream_;
};

bool moves_only(const KernelCall& c) {
  return &c.op != &op::region_put || !c.get_attrs<RegionAttrs>().accumulate;
}

void run_moves(const KernelCall& c) {
  DeviceMover mover(c);
  const detail::MoverGuard guard(mover);
  c.op.reference_fn(c);
}

}  // namespace

void start_with(const KernelCall& c, const Array* x) {
  const Array& y = c.out[0];
  if (y.numel == 0 || (x && x->data == y.data)) return;
  DeviceMover mover(c);
  if (x)
    mover.copy(y.data, y.strides, x->data, x->strides, y.shape, y.rank, size_of(y.dtype));
  else
    mover.fill(y, 0);
}

void copy_as(const KernelCall& c, const Array& x, Address to, const Strides& strides) {
  DeviceMover(c).copy(reinterpret_cast<void*>(to), strides.data(), x.data, x.strides, x.shape,
                      x.rank, size_of(x.dtype));
}
void copy_dense(const KernelCall& c, const Array& x, Address to) {
  copy_as(c, x, to, row_major_strides(x));
}

void register_moves(DeviceKind kind) {
  for (const OpDef* op : all_ops())
    if (op->has(kMoved)) register_kernel(kind, *op, {moves_only, nullptr, nullptr, run_moves});
}

}  // namespace tandem::gpu
