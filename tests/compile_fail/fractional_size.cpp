// error: no match|no matching|could not convert|cannot convert|narrowing
// SPDX-License-Identifier: Apache-2.0
// Sizes are whole numbers.
#include "tandem/tandem.h"

using namespace tandem;

void f() {
#ifdef TD_CONTROL
  zeros({2, 3});
#else
  zeros({2.5, 3.0});
#endif
}
