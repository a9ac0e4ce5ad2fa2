// error: cannot convert|no viable conversion
// SPDX-License-Identifier: Apache-2.0
// A comparison gives a tensor; only a test in if, while and the like reads it.
#include "tandem/tandem.h"

using namespace tandem;

void f(Tensor x, Tensor y) {
#ifdef TD_CONTROL
  if ((x > y).any()) return;
#else
  bool larger = x > y;
  (void)larger;
#endif
}
