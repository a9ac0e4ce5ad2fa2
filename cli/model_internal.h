// SPDX-License-Identifier: Apache-2.0
// What the verbs inspect, predict and bench share: a model by name with its weights or an ONNX
// file, shapes given as text, and figures of the process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/tandem.h"

namespace CLI {
class App;
}

namespace tandem::cli {

struct ModelArguments {
  std::string model, weights;
  int64_t num_classes = 0, image_size = 0;  ///< 0: the model's
};
/// --weights, --num-classes, --image-size.
void add_model_options(CLI::App& verb, ModelArguments& arguments);

/// What a model takes or gives.
struct ModelPort {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  ///< -1: open
};
struct OpenedRun;
/// A model of the registry, of a Hugging Face folder or of an ONNX file, ready to run.
struct LoadedModel {
  std::vector<ModelPort> inputs, outputs;
  StateDict state;  ///< parameters and buffers by name, where it is a module
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> run;
  int64_t parameters = 0, buffers = 0, weight_bytes = 0;
  bool random_weights = false;
  bool from_file = false;
  std::shared_ptr<const OpenedRun> opened = {};  ///< where it is that of a run
};
/// The dtype of a name such as "float16" or "f16"; throws Value.
DType dtype_named(const std::string& name);
/// Is it an ONNX file, by its ending?
bool is_onnx(const std::string& model);
/// Is it a model at all: an ONNX file, a name of the registry or a folder with a config.json?
bool is_model(const std::string& model);
/// A model by name in eval mode, with weights if they are given (the number of classes then follows
/// the file where it is not set); a folder as Hugging Face lays it out; or an ONNX file.
LoadedModel load_model(const ModelArguments& arguments);

/// Is it a run's folder? And its model with the run's weights, made without its data. `weights`:
/// "last" (or "") or "best", by the run's monitor.
bool is_run(const std::string& folder);
LoadedModel load_run(const std::string& folder, const std::string& weights = "");
/// The weights of a run alone; those of a run with LoRA with its updates added to them.
StateDict run_state(const std::string& folder, const std::string& weights = "");

/// --opset, --shapes of the verbs that write ONNX.
struct OnnxArguments {
  std::string shapes;
  int opset = 18;
  bool quiet = false;  ///< say nothing on stdout
};
void add_onnx_options(CLI::App& verb, OnnxArguments& arguments);
/// The model (a run's folder, or what load_model() takes) as an ONNX file whose weights lie beside
/// it. In the folder of the model itself the weights that are there serve. Open dimensions keep
/// names; `shapes` gives the sizes of the example that the result is checked with.
void write_onnx(const ModelArguments& model, const std::string& out, const OnnxArguments& options);
/// Weights as a file of the format that its ending names, read back and compared.
void write_weights(const StateDict& tensors, const std::string& out);

/// Fill the open sizes of the inputs from what the user wrote (interop/named_shapes.h) or, where
/// nothing is said, with 1. Throws Value for a name that no input has.
void set_shapes(LoadedModel& model, const std::string& text);
/// "1x3x224x224".
std::string shape_text(const Shape& s);
/// The model's inputs from a file: arrays by name (.npz, .safetensors), or one .npy.
std::vector<Tensor> file_inputs(const std::string& path, const LoadedModel& model);
/// Inputs of the model's shapes: normal numbers, zeros for integers (ones for masks).
std::vector<Tensor> random_inputs(const LoadedModel& model);

/// Work and places of a forward pass, from a run and its plan.
struct ForwardFigures {
  double flops = 0;
  size_t peak_bytes = 0;                             ///< of the plan, without weights and input
  std::vector<std::pair<std::string, int64_t>> ops;  ///< ops that ran, most first
  std::vector<Shape> outputs;
};
ForwardFigures figures_of(const LoadedModel& model, const std::vector<Tensor>& inputs);

/// Most memory that the process has held so far, in MB; 0 where it is not known.
double peak_memory_mb();

}  // namespace tandem::cli
