// SPDX-License-Identifier: Apache-2.0
// `tandem export RUN model.onnx|model.safetensors`: a trained model out of its run's folder.
#include <CLI/CLI.hpp>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/recipe/open_run.h"

namespace tandem::cli {

void add_export(CLI::App& app, int& code) {
  struct Options {
    recipe::ModelSource model;
    recipe::OnnxFileOptions onnx;
    std::string out;
  };
  CLI::App* verb = app.add_subcommand("export",
                                      "The trained model of a run as a file\n\n"
                                      "  tandem export runs/digits-cnn digits.onnx\n"
                                      "  tandem export runs/digits-cnn digits.safetensors");
  auto o = std::make_shared<Options>();
  verb->add_option("run", o->model.model, "A run's folder")->required();
  verb->add_option("out", o->out, "model.onnx, or .safetensors, .pth, .npz for the weights alone")
      ->required();
  verb->add_option("--weights", o->model.weights,
                   "last: those that the run ended with (default); best: by its monitor");
  add_onnx_options(*verb, o->onnx);
  verb->callback([&code, o] {
    init();
    code = 0;
    const std::string& run = o->model.model;
    TD_CHECK(recipe::is_run(run), Value,
             "'{}' is not a run folder: it has no recipe.yaml and metrics.jsonl\n`tandem runs "
             "list` shows those there are; `tandem convert` takes models by name and files of "
             "weights.",
             run);
    if (recipe::is_onnx(o->out))
      print_written(recipe::write_onnx(o->model, o->out, o->onnx));
    else
      write_and_print(recipe::run_state(run, o->model.weights), o->out);
  });
}

}  // namespace tandem::cli
