// error: has no member named|no member named
// SPDX-License-Identifier: Apache-2.0
// Tensors are values: only cells have methods that end in _.
#include "tandem/tandem.h"

using namespace tandem;

void f(Tensor x, Param p) {
#ifdef TD_CONTROL
  x += 1.0;
  p.assign_(x);
#else
  x.assign_(x + 1.0);
#endif
}
