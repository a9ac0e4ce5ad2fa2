// SPDX-License-Identifier: Apache-2.0
// `tandem compile MODEL --target c99 -o net.c`: a model as C source for devices.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/base/files/file.h"
#include "tandem/edge/edge.h"
#include "tandem/recipe/open_run.h"

namespace tandem::cli {
namespace {

struct CompileVerbOptions {
  recipe::ModelSource model;
  std::string out, shapes, target = "c99";
};

void compile_model(const CompileVerbOptions& o) {
  const std::filesystem::path source(o.out);
  TD_CHECK(source.extension() == ".c", Value,
           "'{}' is no name of a C file\nGive one such as net.c.", o.out);
  recipe::LoadedModel model = recipe::is_run(o.model.model)
                                  ? recipe::load_run(o.model.model, o.model.weights)
                                  : recipe::load_model(o.model);
  recipe::set_shapes(model, o.shapes);
  std::vector<edge::EdgePort> inputs;
  for (const recipe::ModelPort& p : model.inputs)
    inputs.push_back({p.name, Spec(p.dtype, Shape(p.shape))});
  std::vector<std::string> outputs;
  for (const recipe::ModelPort& p : model.outputs) outputs.push_back(p.name);
  const auto forward = [&](std::span<const Tensor> x) {
    return model.run(std::vector<Tensor>(x.begin(), x.end()));
  };
  const edge::EdgeSource c =
      edge::write_c99(forward, inputs, outputs, {.name = source.stem().string()});
  std::filesystem::path header = source;
  header.replace_extension(".h");
  write_file(source.string(), c.source);
  write_file(header.string(), c.header);
  fmt::print(
      "{} and {}: {} steps, {} functions\n  arena   {} bytes (lower bound {})\n"
      "  weights {} bytes\n",
      source.string(), header.string(), c.steps, c.functions, c.arena_bytes, c.lower_bound,
      c.weight_bytes);
  if (model.random_weights)
    fmt::print(stderr, "no --weights: the values are the initial ones, drawn at random\n");
}

}  // namespace

void add_compile(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand("compile",
                                      "A model as one C99 file without dependencies\n\n"
                                      "  tandem compile runs/digits-cnn -o net.c\n"
                                      "  tandem compile model.onnx --shapes x:1x3x32x32 -o net.c");
  auto o = std::make_shared<CompileVerbOptions>();
  verb->add_option("model", o->model.model, "A run's folder, an ONNX file or a model's name")
      ->required();
  verb->add_option("-o,--output", o->out, "The C file; its header lies beside it")->required();
  verb->add_option("--target", o->target, "c99")->check(CLI::IsMember({"c99"}));
  verb->add_option("--shapes", o->shapes, "Sizes of the inputs, as x:1x3x32x32; open ones are 1");
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    init();
    compile_model(*o);
    code = 0;
  });
}

}  // namespace tandem::cli
