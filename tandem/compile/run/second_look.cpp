// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/second_look.h"

#include <fmt/format.h>

#include <cstring>

#include "tandem/ops/stored.h"

namespace tandem::compiler {
namespace {

std::string text_of(const Scalar& s) {
  return s.kind == 2 ? fmt::format("{}", s.f) : fmt::format("{}", s.i);
}

std::string name_of(const Node& n) {
  if (!n.loc.is_user()) return n.op->name;
  return fmt::format("{} ({}:{})", n.op->name, n.loc.file, n.loc.line);
}

// The first element that differs.
std::string difference(const Tensor& was, const Tensor& now) {
  if (was.impl() == now.impl() || (was.impl()->data == now.impl()->data &&
                                   was.shape() == now.shape() && was.dtype() == now.dtype()))
    return "";
  if (!(spec_of(was) == spec_of(now)))
    return fmt::format("was {} and is {}", spec_of(was).to_string(), spec_of(now).to_string());
  const NoGradGuard no_grad;
  const Tensor a = was.cpu().contiguous(), b = now.cpu().contiguous();
  const size_t bytes = static_cast<size_t>(a.numel()) * size_of(a.dtype());
  if (bytes == 0 || std::memcmp(a.impl()->data, b.impl()->data, bytes) == 0) return "";
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i)
    if (std::memcmp(&x[i], &y[i], sizeof x[i]) != 0)
      return fmt::format("had {} at {} and has {}", x[i], i, y[i]);
  return "has other values";
}

/// A graph without gradients that were there when it was traced and that nobody reads.
class Side {
 public:
  explicit Side(const Graph& g) : graph(g), place_(g.nodes.size(), 0) {
    for (const Ref<Node>& n : g.nodes)
      for (const NodeInput& i : n->in)
        if (i.from) place_[i.from->index] = 1;
    const auto use = [&](const Tensor& t) {
      if (t.defined()) place_[node_of(t)->index] = 1;
    };
    for (const Tensor& t : g.outputs) use(t);
    for (const Graph::CellUse& u : g.cells) use(u.exit);
    for (const Graph::GradUse& u : g.grads) use(u.exit);
    for (const Ref<Node>& n : g.nodes) {
      const bool kept = n->op != &op::grad_read || place_[n->index];
      place_[n->index] = kept ? nodes.size() : SIZE_MAX;
      if (kept) nodes.push_back(n.get());
    }
  }
  size_t place(const Node* n) const { return n ? place_[n->index] : SIZE_MAX; }

  const Graph& graph;
  std::vector<const Node*> nodes;

 private:
  std::vector<size_t> place_;
};

class Comparison {
 public:
  Comparison(const Graph& was, const Graph& now) : was_(was), now_(now) {}

  std::string first() {
    const size_t n = std::min(was_.nodes.size(), now_.nodes.size());
    for (size_t i = 0; i < n; ++i)
      if (std::string d = nodes(*was_.nodes[i], *now_.nodes[i]); !d.empty()) return d;
    if (was_.nodes.size() != now_.nodes.size()) return surplus(n);
    if (std::string d = cells(); !d.empty()) return d;
    if (!same_gradients()) return "it stores other gradients";
    if (!same_all(was_.graph.outputs, now_.graph.outputs)) return "it returns other values";
    return "";
  }

 private:
  bool same(const Tensor& a, const Tensor& b) const {
    const size_t at = was_.place(node_of(a));
    return at == now_.place(node_of(b)) &&
           (at == SIZE_MAX || a.impl()->out_index == b.impl()->out_index);
  }
  bool same_all(const std::vector<Tensor>& a, const std::vector<Tensor>& b) const {
    bool equal = a.size() == b.size();
    for (size_t i = 0; equal && i < a.size(); ++i) equal = same(a[i], b[i]);
    return equal;
  }

  std::string surplus(size_t n) const {
    const bool more = now_.nodes.size() > n;
    return fmt::format("{} is {}", name_of(*(more ? now_ : was_).nodes[n]),
                       more ? "new" : "called no more");
  }

  std::string nodes(const Node& a, const Node& b) {
    if (a.op != b.op) return fmt::format("{} was called and now {} is", name_of(a), name_of(b));
    if (a.in.size() != b.in.size() || a.out.size() != b.out.size())
      return fmt::format("{} has other operands", name_of(b));
    for (size_t i = 0; i < a.in.size(); ++i) {
      const NodeInput &x = a.in[i], &y = b.in[i];
      if (x.is_scalar && y.is_scalar) {
        if (x.scalar.kind != y.scalar.kind || x.scalar.i != y.scalar.i)
          return fmt::format("the number of {} was {} and is {}", name_of(b), text_of(x.scalar),
                             text_of(y.scalar));
        continue;
      }
      if (x.is_scalar != y.is_scalar || x.present != y.present ||
          (x.present &&
           (was_.place(x.from.get()) != now_.place(y.from.get()) || x.from_index != y.from_index)))
        return fmt::format("{} has other operands", name_of(b));
    }
    if (std::string d = attributes(a, b); !d.empty()) return d;
    for (size_t o = 0; o < a.out.size(); ++o)
      if (a.out[o].dtype != b.out[o].dtype || !(a.out[o].shape == b.out[o].shape) ||
          !(a.out[o].device == b.out[o].device))
        return fmt::format("{} was {} and is {}", name_of(b),
                           Spec(a.out[o].dtype, a.out[o].shape).to_string(),
                           Spec(b.out[o].dtype, b.out[o].shape).to_string());
    if ((a.flags ^ b.flags) & kNoGrad) return fmt::format("{} has another grad mode", name_of(b));
    return "";
  }

  std::string attributes(const Node& a, const Node& b) {
    if (!a.attrs.get() || !b.attrs.get()) return "";
    x_.clear();
    y_.clear();
    std::vector<RefCounted*> was, now;
    append_attr_bytes(a.attrs.type(), a.attrs.get(), x_, &was);
    append_attr_bytes(b.attrs.type(), b.attrs.get(), y_, &now);
    if (x_ != y_)
      return fmt::format("{} had {{{}}} and has {{{}}}", name_of(b),
                         print_attrs(a.attrs.type(), a.attrs.get()),
                         print_attrs(b.attrs.type(), b.attrs.get()));
    for (size_t i = 0; i < was.size(); ++i) {
      const auto *g = dynamic_cast<Graph*>(was[i]), *h = dynamic_cast<Graph*>(now[i]);
      if (g && h)
        if (std::string d = Comparison(*g, *h).first(); !d.empty()) return d;
      if (a.op != &op::constant) continue;
      if (std::string d = constants(a, b); !d.empty())
        return fmt::format("a constant ({}:{}) {}", b.loc.file ? b.loc.file : "?", b.loc.line, d);
    }
    return "";
  }

  static std::string constants(const Node& a, const Node& b) {
    const auto* x = static_cast<const ConstantAttrs*>(a.attrs.get());
    const auto* y = static_cast<const ConstantAttrs*>(b.attrs.get());
    const auto *s = dynamic_cast<StoredBox*>(x->value.get()),
               *t = dynamic_cast<StoredBox*>(y->value.get());
    if (s && t) return difference(s->bytes, t->bytes);
    return difference(constant_value(*x), constant_value(*y));
  }

  std::string cells() const {
    const auto &was = was_.graph.cells, &now = now_.graph.cells;
    if (was.size() != now.size()) return "it uses other Params or Buffers";
    for (size_t i = 0; i < was.size(); ++i) {
      if (!(was[i].cell == now[i].cell))
        return fmt::format("Param or Buffer '{}' was used and now '{}' is", was[i].cell->name,
                           now[i].cell->name);
      if (!same(was[i].entry, now[i].entry) || !same(was[i].exit, now[i].exit))
        return fmt::format("Param or Buffer '{}' gets another value", now[i].cell->name);
    }
    return "";
  }

  bool same_gradients() const {
    const auto &was = was_.graph.grads, &now = now_.graph.grads;
    bool equal = was.size() == now.size();
    for (size_t i = 0; equal && i < was.size(); ++i)
      equal = was[i].slot == now[i].slot && was[i].stored == now[i].stored &&
              was[i].consumed == now[i].consumed && same(was[i].entry, now[i].entry) &&
              same(was[i].exit, now[i].exit);
    return equal;
  }

  const Side was_, now_;
  std::string x_, y_;  ///< attributes as bytes
};

}  // namespace

std::string difference(const Graph& was, const Graph& now) { return Comparison(was, now).first(); }

}  // namespace tandem::compiler
