// SPDX-License-Identifier: Apache-2.0
// LoadedModel: any model the library can open, behind one function. It may come from a run's
// folder, from the registry by name, from a Hugging Face folder or from an ONNX file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/export.h"
#include "tandem/models/pretrained.h"
#include "tandem/tensor/device.h"
#include "tandem/tensor/shape.h"
#include "tandem/tensor/state_dict.h"
#include "tandem/tensor/tensor.h"

namespace tandem::onnx {
class OnnxRunner;
}
namespace tandem::recipe {

struct OpenedRun;

/// Which model, and what a model by name is made with.
struct ModelSource {
  std::string model;                        ///< a name, a Hugging Face folder or a file of a graph
  std::string weights = "";                 ///< a file of weights; empty: initial ones
  std::string signature = "";               ///< of a SavedModel; empty: "serving_default"
  int64_t num_classes = 0, image_size = 0;  ///< 0: the model's
  bool partial = false;  ///< load the weights that fit; the others stay as they are drawn
  Device device = cpu;   ///< where the model runs
};
using models::ModelPort;

/// What the scores in the first output of a model are, where its file says so.
enum class Scores : uint8_t { unknown, probabilities, log_probabilities };
/// What the first output [n, k] of a model stands for.
enum class Answer : uint8_t {
  classes,  ///< scores of classes, of which one is right
  chances,  ///< scores of classes of which several may be right
  numbers,
  values,  ///< hidden values and the like
};
struct LoadedModel {
  std::vector<ModelPort> inputs, outputs;
  StateDict state;  ///< parameters and buffers by name, where it is a module
  /// On `device`: inputs are brought there, results stay there.
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> run;
  Device device = cpu;
  int64_t parameters = 0, buffers = 0, weight_bytes = 0;
  bool random_weights = false;
  bool from_file = false;
  Answer answer = Answer::classes;
  Scores scores = Scores::unknown;
  std::vector<std::string> labels = {};          ///< names of the classes, where a folder has them
  std::shared_ptr<const OpenedRun> opened = {};  ///< where it is that of a run
  /// Where it is a file's graph: calls it compiled (CompiledForward does).
  std::shared_ptr<onnx::OnnxRunner> runner = {};
  /// Where it is a Hugging Face folder's: what `run` calls.
  std::shared_ptr<models::PretrainedModel> pretrained = {};
  std::vector<std::string> unused = {};  ///< what the file holds and no output depends on
};

/// Is it an ONNX file, by its ending?
TD_API bool is_onnx(const std::string& model);
/// Is it a file or folder that holds a graph: ONNX, SavedModel, a frozen graph, Keras's files?
TD_API bool is_graph_file(const std::string& model);
/// Is it a model at all: one of those, a name of the registry or a folder with a config.json?
TD_API bool is_model(const std::string& model);
/// A model by name in evaluation mode, with weights if they are given (the number of classes then
/// follows the file where it is not set); a Hugging Face folder; or a file of a graph. Throws Value
/// for a name that the registry does not have, and for weights that do not fit.
TD_API LoadedModel load_model(const ModelSource& source);
/// The model of a run with the run's weights: "last" (or "") or "best", by the run's monitor.
/// Throws Unsupported for a model that gives no output for an input alone.
TD_API LoadedModel load_run(const std::string& folder, const std::string& weights = "",
                            Device device = cpu);
/// The weights of a run; LoRA updates are merged into them.
TD_API StateDict run_state(const std::string& folder, const std::string& weights = "");

/// Fill the open sizes of the inputs from `text` (onnx/named_shapes.h) or, where it says nothing,
/// with 1. Throws Value for a name that no input has.
TD_API void set_shapes(LoadedModel& model, const std::string& text);
/// "1x3x224x224".
TD_API std::string shape_text(const Shape& s);
/// The model's inputs from a file: arrays by name (.npz, .safetensors), or one .npy. Throws Value
/// for an array that no input takes.
TD_API std::vector<Tensor> file_inputs(const std::string& path, const LoadedModel& model);
/// Inputs of the model's shapes: normal numbers, zeros for integers (ones for masks).
TD_API std::vector<Tensor> random_inputs(const LoadedModel& model);

/// Work and memory of a forward pass, from a dry run and its plan: nothing is computed.
struct ForwardFigures {
  double flops = 0;
  size_t peak_bytes = 0;                             ///< of the plan, without weights and input
  std::vector<std::pair<std::string, int64_t>> ops;  ///< ops that ran, most frequent first
  std::vector<Shape> outputs;
};
/// For inputs of the model's shapes (set_shapes()). Throws Unsupported where a size depends on
/// values.
TD_API ForwardFigures figures_of(const LoadedModel& model);

}  // namespace tandem::recipe
