// SPDX-License-Identifier: Apache-2.0
// E: the expression of one element, written as C++ (`x * sigmoid(x)`), and ScalarGraph, the untyped
// DAG that it builds: hash-consed, operands before users, constants folded. Rows provide functions
// over E; derivative.h differentiates the graph, scalar_program.h adds types.
#pragma once

#include <concepts>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/graph/expression/scalar_program.h"
#include "tandem/graph/op_def.h"

namespace tandem {

/// A handle to a node of a ScalarGraph, or a number that is not part of one yet. Functions are
/// found by argument lookup: one for each ScalarOp, `where` for select, `maximum`/`minimum` for
/// max/min. Comparisons and && || ! give truth values; a truth value used as a number is 0 or 1, a
/// number used as a truth value is `!= 0`.
class TD_API E {
 public:
  /// Undefined: "no gradient" in an explicit derivative.
  E() = default;
  template <class T>
    requires std::is_arithmetic_v<T> E(T v) : id_(kNumber), number_(v) {}
    explicit E(Scalar v) : id_(kNumber), number_(v) {}

    bool defined() const { return id_ != kNone; }
    /// The node's index in its graph; negative for a number without one.
    int id() const { return id_; }
    ScalarGraph* graph() const { return graph_; }
    /// Whether it is a known number; then `number()` returns it.
    bool is_number() const;
    Scalar number() const;

#define TD_E_0(name)
#define TD_E_1(name) friend TD_API E name(const E& x);
#define TD_E_2(name) friend TD_API E name(const E& a, const E& b);
#define TD_E_3(name) friend TD_API E name(const E& a, const E& b, const E& c);
#define X(name, arity) TD_E_##arity(name)
    TD_FOR_EACH_SCALAR_OP(X)
#undef X
#undef TD_E_0
#undef TD_E_1
#undef TD_E_2
#undef TD_E_3

    friend E operator-(const E& x) { return neg(x); }
    friend E operator!(const E& x) { return logical_not(x); }
    friend E operator~(const E& x) { return bit_not(x); }
#define TD_E_OPERATOR(symbol, name) \
  friend E operator symbol(const E& a, const E& b) { return name(a, b); }
    TD_E_OPERATOR(+, add)
    TD_E_OPERATOR(-, sub)
    TD_E_OPERATOR(*, mul)
    TD_E_OPERATOR(/, div)
    TD_E_OPERATOR(==, eq)
    TD_E_OPERATOR(!=, ne)
    TD_E_OPERATOR(<, lt)
    TD_E_OPERATOR(<=, le)
    TD_E_OPERATOR(>, gt)
    TD_E_OPERATOR(>=, ge)
    TD_E_OPERATOR(&&, logical_and)
    TD_E_OPERATOR(||, logical_or)
    TD_E_OPERATOR(&, bit_and)
    TD_E_OPERATOR(|, bit_or)
    TD_E_OPERATOR(^, bit_xor)
#undef TD_E_OPERATOR
    friend E where(const E& c, const E& a, const E& b) { return select(c, a, b); }
    friend E maximum(const E& a, const E& b) { return max(a, b); }
    friend E minimum(const E& a, const E& b) { return min(a, b); }
    friend E square(const E& x) { return mul(x, x); }

   private:
    friend class ScalarGraph;
    static constexpr int kNone = -1, kNumber = -2;
    E(ScalarGraph* graph, int id) : graph_(graph), id_(id) {}
    static E combine(ScalarOp op, const E& a, const E& b, const E& c);

    ScalarGraph* graph_ = nullptr;
    int id_ = kNone;
    Scalar number_;
};

struct ScalarNode {
  ScalarOp op = ScalarOp::constant;
  int16_t input = -1;  ///< of ScalarOp::input
  int32_t a = -1, b = -1, c = -1;
  Scalar imm;  ///< of ScalarOp::constant
  friend bool operator==(const ScalarNode& x, const ScalarNode& y) {
    return x.op == y.op && x.input == y.input && x.a == y.a && x.b == y.b && x.c == y.c &&
           x.imm.kind == y.imm.kind && x.imm.i == y.imm.i;
  }
};

/// Number of operands of `op`.
TD_API int arity_of(ScalarOp op);
/// "mul"
TD_API const char* to_string(ScalarOp op);

class TD_API ScalarGraph {
 public:
  /// Nodes 0 .. n_in-1 are the inputs.
  explicit ScalarGraph(int n_in);
  ScalarGraph(const ScalarGraph&) = delete;
  ScalarGraph& operator=(const ScalarGraph&) = delete;

  E input(int i);
  E constant(Scalar v);
  /// The node op(a, b, c), simplified; operands are of this graph or numbers.
  E make(ScalarOp op, const E& a, const E& b = {}, const E& c = {});
  /// The handle of node `id`.
  E at(int id) { return E(this, id); }
  void add_output(const E& e);
  /// Copy the nodes that `id` needs from `from`; node k of `from` becomes replacement[k] if that is
  /// defined. Stores the copies in `replacement`.
  E import(const ScalarGraph& from, int id, std::vector<E>& replacement);

  std::vector<ScalarNode> nodes;  ///< operands come before users
  std::vector<int> outputs;
  int n_in;

 private:
  struct Hash {
    size_t operator()(const ScalarNode& n) const;
  };
  int intern(const ScalarNode& n);
  int id_of(const E& e);
  E simplify(ScalarOp op, int a, int b, int c);
  bool is_number(int id, double v) const;
  bool is_op(int id, ScalarOp op) const { return nodes[id].op == op; }

  std::unordered_map<ScalarNode, int, Hash> index_;
};

/// The graph of a row's expression, built once. Throws Internal if the row has none.
TD_API const ScalarGraph& expr_of(const OpDef& op);
/// One line per node: `%2 = mul(%0, %1)`.
TD_API std::string to_string(const ScalarGraph& g);

namespace detail {
/// The row of a derived expression carries its graph (derivative.cpp); its expr_fn is a marker.
struct DerivedOp : OpDef {
  explicit DerivedOp(const OpDef& row, int n_in) : OpDef(row), graph(n_in) {}
  ScalarGraph graph;
  std::vector<std::string> texts;  ///< the strings that the row's names point to
};
void derived_expr_mark(const E* in, E* out);
}  // namespace detail

}  // namespace tandem
