// error: use of deleted function|deleted constructor|call to deleted|implicitly-deleted
// SPDX-License-Identifier: Apache-2.0
// Two optimizers over the same moments would step twice.
#include "tandem/tandem.h"

using namespace tandem;

void f(std::vector<Param> p) {
  optim::SGD a(p);
#ifdef TD_CONTROL
  optim::SGD& b = a;
#else
  optim::SGD b = a;
#endif
  b.step();
}
