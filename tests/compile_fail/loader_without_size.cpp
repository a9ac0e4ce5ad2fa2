// error: constraint|deduction failed|no viable constructor|template argument
// SPDX-License-Identifier: Apache-2.0
// A dataset has size() and get(i).
#include "tandem/tandem.h"

using namespace tandem;

struct Set {
  Tensor get(int64_t) const { return ones({1}); }
#ifdef TD_CONTROL
  int64_t size() const { return 1; }
#endif
};
void f() {
  data::DataLoader loader(Set{}, {.batch_size = 1});
  (void)loader;
}
