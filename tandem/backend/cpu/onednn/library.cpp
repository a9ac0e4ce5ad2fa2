// SPDX-License-Identifier: Apache-2.0
#ifdef TANDEM_HAVE_ONEDNN
#include "tandem/backend/cpu/onednn/library_internal.h"

#include <dlfcn.h>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/error.h"
#include "tandem/base/opens_library.h"

namespace tandem::detail::onednn {
namespace {

// oneDNN takes a limit before its first primitive alone.
void set_limit(const Library& library) {
  switch (cpu_limit()) {
    case CpuLimit::base:
      library.dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
      break;
    case CpuLimit::avx2:
      library.dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
      break;
    case CpuLimit::avx512:
      library.dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core);
      break;
    case CpuLimit::vnni:
      library.dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
      break;
    case CpuLimit::native:
      break;
  }
}

// Never closed: primitives live until their threads end.
Library open() {
  void* handle = dlopen(TD_OPENS_LIBRARY(TANDEM_ONEDNN_SONAME), RTLD_NOW | RTLD_LOCAL);
  TD_CHECK(handle, Unsupported,
           "oneDNN's kernels expect {} beside libtandem, and it cannot be opened: {}\nPut it back "
           "there (scripts/setup, or the installation again), or build with TANDEM_ONEDNN=OFF.",
           TANDEM_ONEDNN_SONAME, dlerror());
  Library it;
#define TD_FIND(name)                                                  \
  it.name = reinterpret_cast<decltype(it.name)>(dlsym(handle, #name)); \
  TD_CHECK(it.name, Unsupported, "{} has no function " #name, TANDEM_ONEDNN_SONAME);
  TD_ONEDNN_FUNCTIONS(TD_FIND)
#undef TD_FIND
  set_limit(it);
  return it;
}

}  // namespace

const Library& library() {
  static const Library it = open();
  return it;
}

}  // namespace tandem::detail::onednn

#endif
