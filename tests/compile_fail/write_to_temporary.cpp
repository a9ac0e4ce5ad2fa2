// error: discards qualifiers|no match|not viable|as .this. argument|cannot convert
// SPDX-License-Identifier: Apache-2.0
// Memory of a temporary would be gone before it is written.
#include "tandem/tandem.h"

using namespace tandem;

void f(Tensor x) {
#ifdef TD_CONTROL
  Tensor y = relu(x);
  y.mutable_data<float>()[0] = 1;
#else
  relu(x).mutable_data<float>()[0] = 1;
#endif
}
