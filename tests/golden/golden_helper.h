// SPDX-License-Identifier: Apache-2.0
// A case of the golden data (see README.md in this folder): its inputs as tensors and numbers, its
// attributes by name, and comparison as the README describes. Used by all tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tandem/grad/transforms.h"
#include "tandem/io/json.h"
#include "tandem/io/safetensors.h"
#include "tandem/ops/vision/scale_factor.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::golden {

using Ts = std::vector<Tensor>;

/// One file of cases; `family` is its name without ".safetensors".
struct File {
  std::string family;
  StateDict pool;
  io::Json cases;
};
/// Read once per process.
const File& file(const std::string& family);
/// The folder of the golden files, with '/'.
std::string folder();
DType dtype_named(const std::string& name);

class Case {
 public:
  Case(const File& f, const io::Json& json);

  std::string name, op;
  /// Tensor i (undefined where null, a number or beyond the end), and how many inputs there are.
  const Tensor& t(size_t i) const;
  size_t n() const { return in_.size(); }
  /// Input i as an operand, number or tensor.
  Operand at(size_t i) const;
  /// All tensors from `from` on.
  Ts rest(size_t from = 0) const;
  void set(size_t i, Tensor t) { in_[i] = std::move(t); }

  bool has(const char* key) const { return attr(key) != nullptr; }
  int64_t i(const char* key, int64_t otherwise = 0) const;
  double d(const char* key, double otherwise = 0) const;
  bool b(const char* key, bool otherwise = false) const;
  std::string s(const char* key, const char* otherwise = "") const;
  IntList list(const char* key, IntList otherwise = {}) const;
  Scalar number(const char* key, Scalar otherwise = 0) const;
  DType dtype(const char* key, DType otherwise = DType::f32) const;
  /// "args" before "attrs".
  const io::Json* attr(const char* key) const;

  /// The tensors of a list such as "outputs" or "grads": undefined where null.
  Ts list_of(const char* key) const;
  const io::Json& json() const { return *json_; }
  const Tensor& stored(const std::string& key) const { return file_->pool.at(key); }
  double rtol() const { return d("rtol"); }
  double atol() const { return d("atol"); }

 private:
  const File* file_;
  const io::Json* json_;
  Ts in_;
  std::vector<Scalar> numbers_;
  std::vector<char> is_number_;
};

/// For GoogleTest's messages.
void PrintTo(const Case& c, std::ostream* out);

/// All cases of a family.
std::vector<Case> cases_of(const std::string& family);
/// |got - want| <= atol + rtol |want|, dtype and shape equal; integers exactly.
::testing::AssertionResult matches(const Tensor& got, const Tensor& want, double rtol, double atol);

/// The public functions by PyTorch's name; nullptr if the table has none of that name.
using Fn = Ts (*)(const Case&);
using FnTable = std::map<std::string, Fn>;
/// Adds a function to the table `t`: its results for the case `g`.
#define CASE(name, ...) t[#name] = [](const Case& g) -> Ts { return {__VA_ARGS__}; }
/// The tensors of a result of several.
template <class Result>
Ts all_of(Result r) {
  return tandem::detail::as_tensors(std::move(r));
}
/// One factor or one per dimension.
inline ScaleFactor factor_of(const Case& g, const char* key) {
  const io::Json* v = g.attr(key);
  if (!v) return {};
  auto number = [](const io::Json& j) { return j.as_int() ? double(*j.as_int()) : *j.as_double(); };
  if (!v->as_array()) return ScaleFactor(number(*v));
  const io::Json::Array& a = *v->as_array();
  if (a.size() == 1) return ScaleFactor(number(a[0]));
  if (a.size() == 2) return ScaleFactor(number(a[0]), number(a[1]));
  return ScaleFactor(number(a[0]), number(a[1]), number(a[2]));
}

Fn function_of(const std::string& op);
/// Linear algebra, searching, segments (golden_math_helper.cpp).
void add_math(FnTable& table);
/// Resampling, pooling, detection (image_ops_helper.cpp).
void add_image_ops(FnTable& table);
/// Distributions (golden_distributions_helper.cpp).
void add_distributions(FnTable& table);

/// Functions composed under PyTorch's names (golden_names_helper.cpp).
void add_names(FnTable& table);

/// Run a case and compare everything that it holds: an op, a layer (files "layers", "nn",
/// "image_layers"), an optimizer or a schedule.
void check_op_case(Case c);
/// The same where PyTorch's results are not those that are wanted: `amend` gets "output 0" or
/// "gradient 1" and PyTorch's, and returns what is.
using Amend = std::function<Tensor(const std::string& what, const Tensor& torch)>;
void check_op_case(Case c, const Amend& amend);
void check_layers_case(Case c);
void check_nn_case(Case c);
void check_image_layer_case(Case c);
void check_optim_case(Case c);
/// The classes whose steps are worked out by hand (optim_test.cpp).
std::set<std::string> optimizers_by_hand();

/// A name as GoogleTest takes it.
std::string test_name(const std::string& name);
inline std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return test_name(info.param.name);
}

}  // namespace tandem::golden
