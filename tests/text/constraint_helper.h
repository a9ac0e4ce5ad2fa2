// SPDX-License-Identifier: Apache-2.0
// JSON and its schemas, read and checked without the library's own reader, and schemas at random.
#pragma once

#include <string_view>

#include "tandem/base/philox.h"
#include "tandem/io/json.h"

namespace tandem::text {

/// Throws std::runtime_error for what is not JSON. Names may come twice.
io::Json read_all(std::string_view text);
/// Whether a value satisfies a schema; `root` is what its references are about.
bool satisfies(const io::Json& v, const io::Json& s, const io::Json& root);
/// A schema drawn at random.
io::Json random_schema(PhiloxStream& random, int depth);

}  // namespace tandem::text
