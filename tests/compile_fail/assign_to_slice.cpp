// error: discards qualifiers|no viable overloaded '='|no match for .operator=.
// SPDX-License-Identifier: Apache-2.0
// A slice is a value as well.
#include "tandem/tandem.h"

using namespace tandem;

void f(Tensor x, Tensor v) {
#ifdef TD_CONTROL
  Tensor part = x[Slice(0, 2)];
  part = v;
#else
  x[Slice(0, 2)] = v;
#endif
}
