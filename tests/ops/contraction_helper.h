// SPDX-License-Identifier: Apache-2.0
// For the tests of matmul, conv, pool, norm, loss, attention and rnn: small tensors, comparisons,
// error texts, and the run of PyTorch's golden cases through a table of functions.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/grad/transforms.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/view/create.h"

namespace tandem::testing {

/// Smooth values of mixed sign, no two equal: f64.
Tensor ramp(Shape shape, double scale = 1.0, double shift = 0.0);

/// Compares shape, dtype and values; NaN equals NaN.
void expect_close(const Tensor& got, const Tensor& want, double rtol = 1e-12, double atol = 1e-12,
                  const std::string& what = "");

/// The text of the Error that f throws; "" and a failure if it throws none.
std::string error_text(const std::function<void()>& f);
/// Expects an Error of this kind whose text contains `part`.
void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& f);

/// Gradients to `order` against central differences, on f64 inputs.
void expect_gradients(const std::function<Tensors(std::span<const Tensor>)>& f,
                      const Tensors& inputs, int order = 2);
/// vmap of f over inputs with a leading batch dimension equals a loop.
void expect_vmap(const std::function<Tensor(std::span<const Tensor>)>& f, const Tensors& inputs,
                 const std::vector<bool>& batched);

/// One golden case: `in` are tensors (undefined where null) and numbers as 0-d f64 tensors.
struct Golden {
  std::string name, op;
  nlohmann::json attrs;
  std::vector<Tensor> in;

  Tensor at(size_t i) const { return i < in.size() ? in[i] : Tensor(); }
  bool has(const char* key) const { return attrs.contains(key) && !attrs[key].is_null(); }
  double number(const char* key, double otherwise) const;
  int64_t integer(const char* key, int64_t otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;
  /// A number or a list; null entries are -1.
  IntList list(const char* key, IntList otherwise) const;
  std::optional<DType> dtype(const char* key) const;
};
using GoldenFn = std::function<Tensors(const Golden&)>;

/// Run all cases of tests/golden/<family>.safetensors whose op is in `table`, forward and
/// gradients. `ops` not in the table are counted; returns how many cases ran.
int run_golden(const std::string& family, const std::map<std::string, GoldenFn>& table);

/// Fills the op table once per test program.
void init_once();

}  // namespace tandem::testing
