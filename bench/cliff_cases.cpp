// SPDX-License-Identifier: Apache-2.0
// One line a case: name, inputs, PyTorch's expression, ours.
#include "bench/cliff_cases.h"

#include <cstring>

#include "tandem/tandem.h"

namespace tandem::bench {
namespace {

using Inputs = std::vector<Tensor>;

#define CASE(name, inputs, torch, ...) \
  {name, inputs, torch, [](const Inputs& x) -> Tensor { return __VA_ARGS__; }},

std::vector<CliffCase> written_cases() {
  return {
#include "bench/cliff_cases.inc"
  };
}
#undef CASE

int tensor_inputs(const OpDef& row) {
  int n = 0;
  for (int i = 0; i < row.n_in; ++i) n += !std::strchr("$?*", OpDef::last_char(row.in_names[i]));
  return n == row.n_in ? n : 0;
}

CliffCase pointwise_case(const OpDef& row) {
  const std::string name = row.name;
  const std::string domain = name == "acosh" || name == "zeta" ? "1000000 gt1" : "1000000 prob";
  const bool two = row.n_in == 2;
  return {"element-wise " + name, two ? domain + "|" + domain : domain,
          "peer('" + name + "')(" + (two ? "x[0], x[1])" : "x[0])"), [&row](const Inputs& x) {
            return row.n_in == 2 ? call(row, nullptr, {}, x[0], x[1])
                                 : call(row, nullptr, {}, x[0]);
          }};
}

CliffCase reduce_case(const OpDef& row, int dim, const char* shape) {
  const std::string name = row.name;
  const auto attrs = std::make_shared<ReduceAttrs>();
  attrs->dims = {dim};
  return {name + " over " + std::to_string(dim) + " of " + shape, shape,
          "peer('" + name + "')(x[0], " + std::to_string(dim) + ")",
          [&row, attrs](const Inputs& x) {
            Tensor out[kMaxOpOuts];
            Operand in[] = {Operand(x[0])};
            apply(row, attrs.get(), in, out, {});
            return out[0];
          }};
}

}  // namespace

std::vector<CliffCase> cliff_cases() {
  std::vector<CliffCase> cases = written_cases();
  for (const OpDef* row : all_ops()) {
    const int n = tensor_inputs(*row);
    const bool numbers = row->types == Types::floating || row->types == Types::arith;
    if (row->family == Family::pointwise && !row->attrs && numbers && (n == 1 || n == 2))
      cases.push_back(pointwise_case(*row));
    if (row->family == Family::reduce && row->attrs == fields<ReduceAttrs>() && n == 1)
      for (const char* shape : {"1000,1001", "33,30000", "30000,33"})
        for (int dim : {0, 1}) cases.push_back(reduce_case(*row, dim, shape));
  }
  return cases;
}

}  // namespace tandem::bench
