// SPDX-License-Identifier: Apache-2.0
// JSON and its schemas, read and checked without the library's own reader, and schemas at random;
// a small vocabulary.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tandem/io/json.h"
#include "tandem/text/constraint.h"

namespace tandem::text {

/// Throws std::runtime_error for what is not JSON. Names may come twice.
io::Json read_all(std::string_view text);
/// Whether a value satisfies a schema; `root` is what its references are about.
bool satisfies(const io::Json& v, const io::Json& s, const io::Json& root);
/// A schema drawn at random.
io::Json random_schema(PhiloxStream& random, int depth);

/// All bytes, then these, as byte-level BPE writes them; the last one ends a text.
Tokenizer tokenizer_with(const std::vector<std::string>& more);
/// One of that kind.
std::shared_ptr<const TokenBytes> vocabulary();
std::shared_ptr<Constraint> constraint(const Grammar& g);
/// Whether the text is one of the grammar.
bool holds(const std::shared_ptr<Constraint>& c, std::string_view text);
/// Whether an error says this. Where "too large" is wanted, a slow machine comes to the limit of
/// seconds before that of states.
bool says(const Error& e, std::string_view want);

}  // namespace tandem::text
