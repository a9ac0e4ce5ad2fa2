// error: use of deleted function|deleted constructor|call to deleted
// SPDX-License-Identifier: Apache-2.0
// A guard ends with its scope, once.
#include "tandem/tandem.h"

using namespace tandem;

void f() {
  NoGradGuard a;
#ifdef TD_CONTROL
  NoGradGuard b;
#else
  NoGradGuard b = a;
#endif
  (void)b;
}
