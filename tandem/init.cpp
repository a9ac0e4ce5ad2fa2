// SPDX-License-Identifier: Apache-2.0
#include "tandem/init.h"

#include <cctype>
#include <mutex>

#include "tandem/backend/cpu/cpu.h"
#include "tandem/backend/gpu/gpu.h"
#include "tandem/compile/lowering/control_kernels.h"
#include "tandem/grad/control_flow.h"
#include "tandem/graph/node.h"
#include "tandem/ops/ops.h"
#include "tandem/tensor/print_options.h"

namespace tandem {
namespace {

/// "AddBackward0" for a node of the row add, as PyTorch names them; "" for a leaf.
std::string grad_fn_name(const detail::NodeBase& base) {
  const Node& n = static_cast<const Node&>(base);
  if (n.is_leaf() || !n.op) return "";
  std::string name;
  bool upper = true;
  for (const char* c = n.op->name; *c; ++c) {
    if (*c != '_') name += upper ? static_cast<char>(std::toupper(*c)) : *c;
    upper = *c == '_';
  }
  return name + "Backward0";
}

}  // namespace

void init() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_all_ops();
    for (const OpDef* op : control_flow_rows()) detail::register_library_op(*op);
    register_cpu_backend();
    register_gpu_backend();
    register_control_kernels();
    detail::set_node_name(grad_fn_name);
  });
}

}  // namespace tandem
