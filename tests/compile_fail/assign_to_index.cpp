// error: discards qualifiers|no viable overloaded '='|no match for .operator=.|is private
// SPDX-License-Identifier: Apache-2.0
// x[i] = v on a temporary would change nothing. x = index_put(std::move(x), {i}, v) does.
#include "tandem/tandem.h"

using namespace tandem;

void f(Tensor x, Tensor v) {
#ifdef TD_CONTROL
  x = index_put(std::move(x), {0}, v);
#else
  x[0] = v;
#endif
}
