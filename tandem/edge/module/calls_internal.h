// SPDX-License-Identifier: Apache-2.0
// Calls of ops as C++ text.
#pragma once

#include <functional>

#include "tandem/edge/module/layers_internal.h"

namespace tandem::edge {

/// An expression; `level` tells what needs parentheses around it.
struct CallText {
  enum Level { call, unary, product, sum, shift, compare };
  Text text;
  int level = call;
};
/// How the function that is being written refers to values and open sizes.
struct CallScope {
  const TracedModel& m;
  std::function<CallText(ValueId)> operand;
  std::function<std::string(Dim)> size;
};

/// One call of an op, for the rows whose text takes more than a format.
class OpCall {
 public:
  OpCall(const CallScope& scope, const ModuleStep& step) : scope_(scope), step_(step) {}

  const ModuleStep& step() const { return step_; }
  const OpDef& op() const { return *step_.node->op; }
  bool has(size_t i) const {
    return i < step_.in.size() && (step_.in[i].is_number || step_.in[i].value != kNoValue);
  }
  /// Input i is a member of the module.
  bool is_weight(size_t i) const;
  const Spec& spec(size_t i) const;
  const Shape& result(size_t i = 0) const;
  template <class A>
  const A& attrs() const {
    return StepGraph::attrs<A>(step_);
  }
  /// Input i as an argument; at most of that level without parentheses.
  Text in(size_t i, int level = CallText::compare) const;
  /// Sizes in braces; one number where `same` and all are equal, or where there is one.
  Text list(const IntList& v, const std::string& hint, bool same = false) const;
  std::string size(Dim d) const { return scope_.size(d); }

 private:
  const CallScope& scope_;
  const ModuleStep& step_;
};

/// "f(a, b)" of texts and strings.
template <class... T>
Text text_of(T&&... parts) {
  Text t;
  (append(t, std::forward<T>(parts)), ...);
  return t;
}

/// The call, or nothing where the row has no C++ form (or not with these attributes).
std::optional<CallText> call_text(const OpCall& c);
/// special_calls.cpp: of rows whose function depends on more than their attributes' values.
using SpecialCall = std::optional<CallText> (*)(const OpCall&);
SpecialCall special_call(std::string_view row);
/// The fields of the struct that it returns, where the row has several results.
std::vector<std::string> result_fields(const OpDef& op);
/// The headers that a text with calls needs, sorted.
std::vector<std::string> headers_called(const std::string& text);
/// The rows with a form, for tests.
std::vector<std::string> rows_with_cpp_form();
std::vector<std::string> special_rows();
/// "DType::f32"
std::string dtype_text(DType t);

}  // namespace tandem::edge
