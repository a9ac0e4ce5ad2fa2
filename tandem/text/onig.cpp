// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "tandem/base/error.h"
#include "tandem/base/opens_library.h"
#include "tandem/text/onig_internal.h"

namespace tandem::text {
namespace {

template <class T>
void find(void* library, const char* name, T& out) {
  void* found = dlsym(library, name);
  TD_CHECK(found, Unsupported, "{} has no {}", TANDEM_ONIG_NAME, name);
  out = reinterpret_cast<T>(found);
}

Onig open() {
  // Never closed: expressions that outlive main() still need it to free themselves.
  void* library = dlopen(TD_OPENS_LIBRARY(TANDEM_ONIG_NAME), RTLD_NOW | RTLD_LOCAL);
  TD_CHECK(library, Unsupported,
           "tokenizers with regular expressions need {}, which cannot be opened: {}. On Debian it "
           "comes with the package libonig5",
           TANDEM_ONIG_NAME, dlerror());
  Onig it{};
  find(library, "onig_new", it.make);
  find(library, "onig_free", it.free);
  find(library, "onig_search", it.search);
  find(library, "onig_region_new", it.region_new);
  find(library, "onig_region_free", it.region_free);
  find(library, "onig_error_code_to_str", it.error_text);
  find(library, "OnigEncodingUTF8", it.utf8);
  OnigSyntaxType** syntax = nullptr;
  find(library, "OnigDefaultSyntax", syntax);
  it.syntax = *syntax;
  decltype(&::onig_initialize) initialize = nullptr;
  find(library, "onig_initialize", initialize);
  OnigEncoding encodings[] = {it.utf8};
  TD_CHECK(initialize(encodings, 1) == ONIG_NORMAL, Unsupported, "{} cannot be set up",
           TANDEM_ONIG_NAME);
  return it;
}

}  // namespace

const Onig& onig() {
  static const Onig it = open();
  return it;
}

}  // namespace tandem::text
