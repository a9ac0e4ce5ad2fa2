// SPDX-License-Identifier: Apache-2.0
#pragma once
// Oniguruma, opened privately at first use. It is not linked: it exports regcomp, regexec and so on
// under their POSIX names but with different structures, and a program that linked it would get
// these instead of the C library's.
#include <oniguruma.h>

namespace tandem::text {

struct Onig {
  decltype(&::onig_new) make;
  decltype(&::onig_free) free;
  decltype(&::onig_search) search;
  decltype(&::onig_region_new) region_new;
  decltype(&::onig_region_free) region_free;
  decltype(&::onig_error_code_to_str) error_text;
  OnigEncoding utf8;
  OnigSyntaxType* syntax;
};

// Throws Unsupported when the library that Tandem was built with is missing.
const Onig& onig();

}  // namespace tandem::text
