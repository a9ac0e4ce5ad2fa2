// error: static_cast|non-const lvalue reference|cannot bind
// SPDX-License-Identifier: Apache-2.0
// A Param is a handle to a cell: no Tensor& to it exists, so nothing can be written past it.
#include "tandem/tandem.h"

using namespace tandem;

void f(Param p) {
#ifdef TD_CONTROL
  Tensor value = p;
  p.assign_(value * 2.0);
#else
  Tensor& inside = static_cast<Tensor&>(p);
  inside = ones({1});
#endif
}
