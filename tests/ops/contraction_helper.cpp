// SPDX-License-Identifier: Apache-2.0
// Implementation of contraction_helper.h.
#include "contraction_helper.h"

#include <cmath>
#include <cstdlib>

#include "tandem/graph/context.h"
#include "tandem/init.h"
#include "tandem/io/safetensors.h"

namespace tandem::testing {

void init_once() {
  static const bool done = [] {
    init();
    return true;
  }();
  (void)done;
}

Tensor ramp(Shape shape, double scale, double shift) {
  auto n = static_cast<size_t>(shape.numel().value());
  std::vector<double> v(n);
  for (size_t i = 0; i < n; ++i) {
    double x = static_cast<double>(i);
    v[i] = scale * (std::sin(1.3 * x + 0.7) + 0.37 * std::cos(0.41 * x * x)) + shift;
  }
  return tensor(v).reshape(shape);
}

void expect_close(const Tensor& got, const Tensor& want, double rtol, double atol,
                  const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.shape().to_string(), want.shape().to_string()) << what;
  ASSERT_EQ(to_string(got.dtype()), std::string(to_string(want.dtype()))) << what;
  std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b[i])) {
      ASSERT_TRUE(std::isnan(a[i])) << what << " element " << i << " is " << a[i] << ", not NaN";
    } else if (std::isinf(b[i])) {
      ASSERT_EQ(a[i], b[i]) << what << " element " << i;
    } else {
      ASSERT_LE(std::abs(a[i] - b[i]), atol + rtol * std::abs(b[i]))
          << what << " element " << i << " is " << a[i] << ", expect " << b[i];
    }
  }
}

std::string error_text(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(to_string(e.kind()), std::string(to_string(kind))) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_FALSE(e.op().empty()) << e.what();
    EXPECT_TRUE(e.loc().is_user()) << e.what();
    return;
  }
  ADD_FAILURE() << "no error, wanted: " << part;
}

void expect_gradients(const std::function<Tensors(std::span<const Tensor>)>& f,
                      const Tensors& inputs, int order) {
  GradcheckOptions o;
  o.order = order;
  o.atol = 2e-6;
  o.rtol = 2e-5;
  auto call = [&](std::span<const Tensor> x) { return f(x); };
  EXPECT_TRUE(gradcheck(call, inputs, o));
}

void expect_vmap(const std::function<Tensor(std::span<const Tensor>)>& f, const Tensors& inputs,
                 const std::vector<bool>& batched) {
  std::vector<int> dims;
  int64_t n = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    dims.push_back(batched[i] ? 0 : kNoBatchDim);
    if (batched[i]) n = inputs[i].size(0);
  }
  auto list = [&](std::span<const Tensor> x) { return Tensors{f(x)}; };
  Tensor got = detail::vmap_call(list, inputs, dims, 0, SourceLocation::here())[0];
  Tensors slices;
  for (int64_t b = 0; b < n; ++b) {
    Tensors one;
    for (size_t i = 0; i < inputs.size(); ++i)
      one.push_back(batched[i] ? inputs[i].select(0, b) : inputs[i]);
    slices.push_back(f(one));
  }
  expect_close(got, stack(slices, 0), 1e-10, 1e-10, "vmap");
}

// ---- golden cases

double Golden::number(const char* key, double otherwise) const {
  if (!has(key)) return otherwise;
  const nlohmann::json& v = attrs[key];
  if (v.is_string()) return v == "inf" ? INFINITY : v == "-inf" ? -INFINITY : NAN;
  return v.get<double>();
}
int64_t Golden::integer(const char* key, int64_t otherwise) const {
  return has(key) ? attrs[key].get<int64_t>() : otherwise;
}
bool Golden::flag(const char* key, bool otherwise) const {
  return has(key) ? attrs[key].get<bool>() : otherwise;
}
std::string Golden::text(const char* key, const std::string& otherwise) const {
  return has(key) ? attrs[key].get<std::string>() : otherwise;
}
IntList Golden::list(const char* key, IntList otherwise) const {
  if (!has(key)) return otherwise;
  if (attrs[key].is_number()) return {attrs[key].get<int64_t>()};
  IntList r;
  for (const nlohmann::json& v : attrs[key]) r.push_back(v.is_null() ? -1 : v.get<int64_t>());
  return r;
}
std::optional<DType> Golden::dtype(const char* key) const {
  if (!has(key)) return {};
  for (int i = 0; i < kDTypeCount; ++i)
    if (attrs[key] == to_string(static_cast<DType>(i))) return static_cast<DType>(i);
  return {};
}

namespace {

struct Keys {
  const StateDict& tensors;
  Tensor get(const nlohmann::json& key) const {
    if (key.is_null()) return {};
    if (key.is_object()) return tensor(key["scalar"].get<double>());
    return tensors.at(key.get<std::string>());
  }
};

void check_case(const nlohmann::json& c, const Keys& keys, const GoldenFn& f) {
  Golden g{c["name"], c["op"], c["attrs"], {}};
  double rtol = c["rtol"], atol = c["atol"];
  std::vector<Tensor> leaves;
  std::vector<size_t> asked;
  for (size_t i = 0; i < c["inputs"].size(); ++i) {
    Tensor t = keys.get(c["inputs"][i]);
    if (c.contains("grads") && i < c["grads"].size() && !c["grads"][i].is_null()) {
      t = t.clone().requires_grad_();
      leaves.push_back(t);
      asked.push_back(i);
    }
    g.in.push_back(t);
  }
  Tensors y = f(g);
  ASSERT_EQ(y.size(), c["outputs"].size()) << g.name;
  for (size_t i = 0; i < y.size(); ++i)
    expect_close(y[i], keys.get(c["outputs"][i]), rtol, atol, g.name);
  if (leaves.empty()) return;
  Tensors outs;
  GradOptions o;
  for (size_t i = 0; i < y.size(); ++i) {
    Tensor go = i < c["grad_out"].size() ? keys.get(c["grad_out"][i]) : Tensor();
    if (!go.defined()) continue;
    outs.push_back(y[i]);
    o.grad_outputs.push_back(go);
  }
  Tensors got = grad(outs, leaves, o);
  for (size_t i = 0; i < got.size(); ++i)
    expect_close(got[i], keys.get(c["grads"][asked[i]]), 4 * rtol, 4 * atol, g.name + " gradient");
}

}  // namespace

int run_golden(const std::string& family, const std::map<std::string, GoldenFn>& table) {
  init_once();
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  std::string path = std::string(root ? root : ".") + "/tests/golden/" + family + ".safetensors";
  Metadata metadata;
  StateDict tensors = load(path, &metadata);
  int ran = 0;
  for (const auto& [key, value] : metadata) {
    if (key != "cases") continue;
    for (const nlohmann::json& c : nlohmann::json::parse(value)) {
      auto at = table.find(c["op"].get<std::string>());
      if (at == table.end()) continue;
      SCOPED_TRACE(c["name"].get<std::string>());
      try {
        check_case(c, Keys{tensors}, at->second);
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
      ++ran;
    }
  }
  return ran;
}

}  // namespace tandem::testing
