// SPDX-License-Identifier: Apache-2.0
// The shared library opened at run time by a program that was not linked with it, as language
// bindings and plugins do: its thread-local data must fit what the loader has left then.
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace {

TEST(OpenLibrary, OpsRunInAModuleThatIsOpenedLate) {
  void* module = dlopen(TANDEM_MODULE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  auto* sum = reinterpret_cast<double (*)()>(dlsym(module, "tandem_module_sum"));
  ASSERT_NE(sum, nullptr) << dlerror();
  // y = sum of relu(x x') and all of x x' is positive: the gradient of x[i][k] is twice the sum of
  // column k, their sum 2 * 3 * (0 + ... + 11).
  EXPECT_EQ(sum(), 396.0);
  // The pool's threads run code of the library: closing the module must not unload it.
  EXPECT_EQ(dlclose(module), 0);
  EXPECT_NE(dlopen("libtandem.so.0", RTLD_NOW | RTLD_NOLOAD), nullptr);
}

}  // namespace
