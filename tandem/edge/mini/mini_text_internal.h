// SPDX-License-Identifier: Apache-2.0
// Texts that are files of the source tree: tandem_c.h, checks.inc and tandem_mini.c.
#pragma once

namespace tandem::edge {

const char* c_header_text();
const char* mini_checks_text();
const char* mini_source_text();

}  // namespace tandem::edge
