// error: discards qualifiers|no viable overloaded '='|no match for .operator=.
// SPDX-License-Identifier: Apache-2.0
// The result of a function is a value, no place to store into.
#include "tandem/tandem.h"

using namespace tandem;

void f(Tensor x, Tensor v) {
#ifdef TD_CONTROL
  x = relu(x);
  x = v;
#else
  relu(x) = v;
#endif
}
