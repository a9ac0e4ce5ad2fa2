// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/roles.h"

#include <algorithm>
#include <iterator>

#include "tandem/ops/ops.h"

namespace tandem::quant {
namespace {

struct RoleRow {
  const OpDef* op;
  Role role;
};
constexpr RoleRow kRoles[] = {
    {&op::add, Role::sums},          {&op::cat, Role::sums},        {&op::avg_pool, Role::sums},
    {&op::mean, Role::sums},         {&op::max_pool, Role::passes}, {&op::relu, Role::follows},
    {&op::relu6, Role::follows},     {&op::clamp, Role::follows},   {&op::clamp_min, Role::follows},
    {&op::clamp_max, Role::follows},
};

bool adds_constant(const Network& net, const Node& n) {
  return n.op == &op::add && std::any_of(n.in.begin(), n.in.end(), [&](const NodeInput& i) {
           return !i.present || net.is_known(i);
         });
}

}  // namespace

Role role_of(const Network& net, const Node& n) {
  if (net.is_folded(n) || n.op->family == Family::view) return Role::passes;
  if (adds_constant(net, n)) return Role::follows;
  const auto* at = std::find_if(std::begin(kRoles), std::end(kRoles),
                                [&](const RoleRow& r) { return r.op == n.op; });
  return at == std::end(kRoles) ? Role::other : at->role;
}

bool has_weight(const Node& n, const Shape& shape, int& axis) {
  if (n.op == &op::conv || n.op == &op::linear) {
    axis = 0;
    return true;
  }
  if (n.op == &op::conv_backward_input) {  // a transposed convolution, weight [in, out, ...]
    axis = 1;
    return static_cast<const ConvAttrs*>(n.attrs.get())->groups == 1;
  }
  if (n.op != &op::matmul || shape.rank() != 2) return false;
  axis = static_cast<const MatmulAttrs*>(n.attrs.get())->trans_b ? 0 : 1;
  return true;
}

bool multiplies_rows(const Layer& layer) {
  const Node& n = *layer.node;
  if (n.in[0].shape.rank() < 2) return false;
  return n.op == &op::linear ||
         (n.op == &op::matmul && !static_cast<const MatmulAttrs*>(n.attrs.get())->trans_a);
}

int result_axis(const Layer& layer) {
  return layer.node->op->has(kConvolution) ? 1 : layer.node->out[0].shape.rank() - 1;
}

}  // namespace tandem::quant
