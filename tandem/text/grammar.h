// SPDX-License-Identifier: Apache-2.0
// Grammar: a set of texts, given by a regular expression, a JSON schema, rules or a list. A
// Constraint (constraint.h) holds the answers of a language model to one. Handles; several threads
// may share one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tandem/base/export.h"
#include "tandem/io/json.h"

namespace tandem::text {

struct Network;

/// What stands around the value of a schema. Where `between` is not empty, one or more of them may
/// follow each other with that in between.
struct SchemaFrame {
  std::string before = "", after = "", between = "";
};

class TD_API Grammar {
 public:
  /// Texts that match from beginning to end. Classes are those of ASCII (\d, \w, \s). Throws Value
  /// naming the place and what is not supported: lookaround, back references, flags, \b, \p.
  static Grammar regex(std::string_view pattern);
  /// Texts of the rule `root` of a grammar in the EBNF of llama.cpp and XGrammar (GBNF):
  ///   root ::= "yes" | "no" (", " [a-z]+){0,3}   # a comment
  /// Throws Value naming the place, rules that are not there, and rules that begin with themselves.
  static Grammar ebnf(std::string_view rules);
  /// One of the texts.
  static Grammar choice(std::span<const std::string> texts);
  /// Any JSON object.
  static Grammar json_object();
  /// JSON that satisfies the schema, with its properties in the schema's order. Objects that list
  /// `properties` have no others unless `additionalProperties` says so. Throws Value naming a
  /// keyword that is not supported, and where nothing satisfies the schema.
  static Grammar json_schema(const io::Json& schema, const SchemaFrame& frame = {});

  const std::shared_ptr<const Network>& network() const { return network_; }

 private:
  explicit Grammar(std::shared_ptr<const Network> network) : network_(std::move(network)) {}
  std::shared_ptr<const Network> network_;
};

}  // namespace tandem::text
