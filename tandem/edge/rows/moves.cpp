// SPDX-License-Identifier: Apache-2.0
// Rows that move elements by a rule (copy, cat, pad, flip ...): their references say which strided
// copies and fills they are made of, and each becomes a nest of loops.
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/codegen/tile_loop.h"
#include "tandem/codegen/tile_plan.h"
#include "tandem/edge/rows_internal.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::edge {
namespace {

// Operand k of the call lies, for the reference, at address (k + 1) << kOperandBits.
constexpr int kOperandBits = 40;

class MoveWriter final : public detail::Mover {
 public:
  MoveWriter(const KernelCall& c, Lines& to) : n_in_(c.n_in), to_(to) {}

  void copy(void* dst, const int64_t* dst_strides, const void* src, const int64_t* src_strides,
            const int64_t* shape, int rank, size_t size) override {
    codegen::TileLoop loop;
    loop.n_arrays = 2;
    loop.rank = rank;
    for (int d = 0; d < rank; ++d) {
      loop.size[d] = shape[d];
      loop.stride[0][d] = dst_strides[d];
      loop.stride[1][d] = src_strides[d];
    }
    loop.normalise(0);
    to_.open_nest(loop);
    to_.line("{} = {};", element(dst, loop, 0, size), element(src, loop, 1, size));
    to_.close_nest(loop);
  }

  void fill(const Array& y, Scalar value) override {
    const Array* arrays[] = {&y};
    const codegen::TileLoop loop = codegen::TileLoop::make(y.shape, y.rank, arrays, 1, 0);
    alignas(8) char bytes[8] = {};
    visit_dtype(y.dtype, [&](auto tag) {
      const auto v = detail::scalar_as<decltype(tag)>(value);
      std::memcpy(bytes, &v, sizeof v);
    });
    to_.open_nest(loop);
    to_.line("{} = {};", element(y.data, loop, 0, size_of(y.dtype)),
             element_literal(bytes, y.dtype, 0));
    to_.close_nest(loop);
  }

 private:
  // "y0[12 + i0 * 4]": the element of an operand that a loop stands at.
  std::string element(const void* at, const codegen::TileLoop& loop, int array, size_t size) const {
    const auto address = reinterpret_cast<uintptr_t>(at);
    const int operand = static_cast<int>(address >> kOperandBits) - 1;
    TD_ASSERT(operand >= 0);
    const auto first =
        static_cast<int64_t>((address & ((uintptr_t{1} << kOperandBits) - 1)) / size);
    std::string index = place_in(loop, array);
    if (first != 0)
      index = index == "0" ? std::to_string(first) : fmt::format("{} + {}", first, index);
    return operand < n_in_ ? fmt::format("x{}[{}]", operand, index)
                           : fmt::format("y{}[{}]", operand - n_in_, index);
  }

  const int n_in_;
  Lines& to_;
};

}  // namespace

void emit_moves(const KernelCall& c, Body& to) {
  std::vector<Array> in(c.in, c.in + c.n_in), out(c.out, c.out + c.n_out);
  uintptr_t operand = 1;
  for (Array& a : in) {
    if (a.present() && !a.is_scalar) a.data = reinterpret_cast<void*>(operand << kOperandBits);
    ++operand;
  }
  for (Array& a : out) {
    if (a.present()) a.data = reinterpret_cast<void*>(operand << kOperandBits);
    ++operand;
  }
  KernelCall call = c;
  call.in = in.data();
  call.out = out.data();
  MoveWriter writer(c, to.text);
  const detail::MoverGuard guard(writer);
  c.op.reference_fn(call);
}

}  // namespace tandem::edge
