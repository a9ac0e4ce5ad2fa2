// SPDX-License-Identifier: Apache-2.0
// `tandem verify A B`: compares two files of tensors (weights, or outputs of predict), or the
// outputs of models: of two, or of one with a file. Exit code 3 when they differ.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/tandem.h"
#include "tandem/tensor/strided.h"
#include "tandem/weights/weights.h"

namespace tandem::cli {
namespace {

struct Difference {
  double largest = 0, scale = 0;  // of |a - b|, and of |a|
  int64_t outside = 0;            // elements beyond atol + rtol |b|, NaN against a number
};

Difference compare(const Tensor& a, const Tensor& b, double rtol, double atol) {
  const auto n = static_cast<size_t>(a.numel());
  std::vector<double> x(n), y(n);
  if (n > 0) {
    detail::copy_row_major(*a.impl(), x.data(), DType::f64);
    detail::copy_row_major(*b.impl(), y.data(), DType::f64);
  }
  Difference d;
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    const double apart = x[i] == y[i] ? 0 : std::abs(x[i] - y[i]);
    if (!(apart <= atol + rtol * std::abs(y[i]))) ++d.outside;
    d.largest = std::isnan(apart) ? INFINITY : std::max(d.largest, apart);
    d.scale = std::max(d.scale, std::abs(y[i]));
  }
  return d;
}

struct VerifyOptions {
  std::string a, b, input, shapes;
  recipe::ModelSource model;
  double rtol = 0, atol = 0;
  bool json = false;
};

/// Outputs of two models on the same inputs, by their order; of one beside a file, by their names.
std::pair<StateDict, StateDict> outputs_of(const VerifyOptions& o) {
  recipe::ModelSource first = o.model, second = o.model;
  first.model = o.a;
  second.model = o.b;
  const bool both = recipe::is_model(o.a) && recipe::is_model(o.b);
  // --weights are for the one of two models that brings none.
  for (recipe::ModelSource* source : {&first, &second})
    if (both && recipe::is_graph_file(source->model)) source->weights.clear();
  recipe::LoadedModel one = recipe::load_model(recipe::is_model(o.a) ? first : second);
  recipe::set_shapes(one, o.shapes);
  manual_seed(0);
  const std::vector<Tensor> inputs =
      o.input.empty() ? recipe::random_inputs(one) : recipe::file_inputs(o.input, one);
  NoGradGuard no_grad;
  const auto run = [&](const recipe::LoadedModel& m) {
    StateDict d;
    const std::vector<Tensor> y = m.run(inputs);
    for (size_t i = 0; i < y.size(); ++i) d[one.outputs.at(i).name] = y[i];
    return d;
  };
  if (both) {
    const recipe::LoadedModel two = recipe::load_model(second);
    TD_CHECK(one.inputs.size() == two.inputs.size() && one.outputs.size() == two.outputs.size(),
             Value, "'{}' takes {} inputs and gives {} outputs, '{}' {} and {}", o.a,
             one.inputs.size(), one.outputs.size(), o.b, two.inputs.size(), two.outputs.size());
    return {run(one), run(two)};
  }
  TD_CHECK(!o.input.empty(), Value,
           "to compare a model with a file of outputs, its inputs are needed too\nGive --input.");
  if (recipe::is_model(o.a)) return {run(one), weights::load_weights(o.b)};
  return {weights::load_weights(o.a), run(one)};
}

}  // namespace

void add_verify(CLI::App& app, int& code) {
  CLI::App* verb =
      app.add_subcommand("verify",
                         "Compare two files of tensors, or what models give\n\n"
                         "  tandem verify a.safetensors b.pth\n"
                         "  tandem verify ours.npz theirs.npz --rtol 1e-4 --atol 1e-5\n"
                         "  tandem verify resnet50 resnet50.onnx --weights w.pth --rtol 1e-4\n"
                         "  tandem verify net.onnx theirs.npz --input x.npz --rtol 1e-4");
  auto o = std::make_shared<VerifyOptions>();
  verb->add_option("a", o->a, "First file, or a model: its name, a folder or an ONNX file")
      ->required();
  verb->add_option("b", o->b, "Second one")->required();
  verb->add_option("--input", o->input, "Inputs of the models (.npz, .safetensors, .npy)");
  verb->add_option("--shapes", o->shapes, "Shapes of random inputs, as x:1x3x224x224");
  add_model_options(*verb, o->model);
  verb->add_option("--rtol", o->rtol, "Allowed difference, relative to b");
  verb->add_option("--atol", o->atol, "Allowed difference");
  verb->add_flag("--json", o->json, "The result as JSON");
  verb->callback([&code, o] {
    init();
    StateDict a, b;
    if (recipe::is_model(o->a) || recipe::is_model(o->b)) {
      std::tie(a, b) = outputs_of(*o);
    } else {
      a = weights::load_weights(o->a);
      b = weights::load_weights(o->b);
    }
    nlohmann::ordered_json differences = nlohmann::ordered_json::array();
    auto add = [&](const std::string& name, const std::string& what) {
      differences.push_back({{"name", name}, {"what", what}});
    };
    double largest = 0;
    for (const auto& [name, t] : a) {
      const Tensor* u = b.find(name);
      if (!u) {
        add(name, "only in the first file");
      } else if (t.shape() != u->shape()) {
        add(name, fmt::format("{} and {}", t.shape().to_string(), u->shape().to_string()));
      } else {
        const Difference d = compare(t, *u, o->rtol, o->atol);
        largest = std::max(largest, d.largest);
        if (d.outside > 0)
          add(name, fmt::format("{} of {} elements differ, by up to {:.3g} (values up to {:.3g})",
                                d.outside, t.numel(), d.largest, d.scale));
        else if (t.dtype() != u->dtype())
          add(name, fmt::format("{} and {}", to_string(t.dtype()), to_string(u->dtype())));
      }
    }
    for (const auto& [name, u] : b)
      if (!a.contains(name)) add(name, "only in the second file");
    code = differences.empty() ? 0 : 3;
    if (o->json) {
      fmt::print("{}\n", nlohmann::ordered_json{{"equal", differences.empty()},
                                                {"tensors", a.size()},
                                                {"largest_difference", largest},
                                                {"differences", differences}}
                             .dump(2));
      return;
    }
    for (const auto& d : differences)
      fmt::print("{}: {}\n", d["name"].get<std::string>(), d["what"].get<std::string>());
    if (differences.empty())
      fmt::print("{} tensors agree, largest difference {:.3g}\n", a.size(), largest);
  });
}

}  // namespace tandem::cli
