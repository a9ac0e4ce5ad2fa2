// SPDX-License-Identifier: Apache-2.0
// A step's operands as its kernel sees them before there are addresses.
#include "tandem/compile/lowering/stages.h"

namespace tandem::compiler {

Array array_of_place(const Lowered& l, int k) {
  Array a;
  const Place& q = l.places[static_cast<size_t>(k)];
  a.data = reinterpret_cast<void*>(uintptr_t{64});  // of a kernel that only asks for presence
  a.shape = q.shape.data();
  a.strides = q.strides.data();
  a.numel = q.shape.numel().value();
  a.dtype = q.dtype;
  a.rank = static_cast<uint8_t>(q.shape.rank());
  a.contiguous = q.contiguous;
  return a;
}

Arrays arrays_of(const Lowered& l, const Step& s) {
  Arrays a;
  for (const StepInput& x : s.in) {
    Array y;
    if (x.is_number) {
      y.is_scalar = true;
      y.scalar = x.number;
      y.dtype = x.number.dtype();
    } else if (x.place != kNone) {
      y = array_of_place(l, x.place);
    }
    a.in.push_back(y);
  }
  for (size_t o = 0; o < s.out.size(); ++o)
    if (s.out[o] != kNone) a.out[o] = array_of_place(l, s.out[o]);
  return a;
}

KernelCall call_of(const Lowered& l, const Step& s, Arrays& a) {
  KernelCall call{*s.op, s.attrs.get(), a.in.data(), static_cast<int>(a.in.size()),
                  a.out, s.op->n_out};
  call.device = s.on_host ? cpu : l.device;  // whose kernel it is
  return call;
}

}  // namespace tandem::compiler
