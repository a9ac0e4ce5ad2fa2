// SPDX-License-Identifier: Apache-2.0
// Functions of tests whose programs have weights that stay: compiled they equal eager code at any
// thread count.
#pragma once

#include <functional>
#include <string>

#include "tandem/base/parallel.h"
#include "tests/compile/helpers.h"

namespace tandem::test {

using Function = std::function<Tensor(Tensor)>;

/// A weight as an importer provides it: a value inside a trace.
inline Tensor fixed(const Tensor& w) { return is_tracing() ? constant(w) : w; }

template <class F>
auto fast_compile(F f) {
  return compile(std::move(f), {.same_bits = false});
}

/// Compiled f equals f line by line, for several thread counts: to the bit unless it may round.
/// Returns the last Executable that may.
inline Ref<Executable> expect_same(const Function& f, const Tensor& x, const std::string& what,
                                   double most = 2e-5) {
  NoGradGuard no_grad;
  const Tensor want = f(x);
  Ref<Executable> last;
  Tensor first;
  for (int threads : {1, 2, 8}) {
    set_num_threads(threads);
    auto fast = fast_compile([&](Tensor v) { return f(v); });
    const Tensor got = fast(x);
    EXPECT_EQ(got.shape().to_string(), want.shape().to_string()) << what;
    EXPECT_LE(distance(got, want), most) << what << ", " << threads << " threads";
    if (!first.defined()) first = got;
    EXPECT_TRUE(same_bits(got, first)) << what << ": bits depend on the threads";
    last = fast.executable();
    const Tensor exact = compile([&](Tensor v) { return f(v); })(x);
    EXPECT_TRUE(same_bits(exact, want)) << what << ", " << threads << " threads";
  }
  set_num_threads(0);
  return last;
}

}  // namespace tandem::test
