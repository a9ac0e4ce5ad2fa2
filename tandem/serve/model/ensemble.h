// SPDX-License-Identifier: Apache-2.0
// Ensemble: models that run one after the other on a request, as a graph of named tensors. The
// tensors between them stay in the process. The versions of the models are those that were served
// when the ensemble was made; where one is replaced, the ensemble is made again, so every request
// goes through one set of versions.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/recipe/loaded_model.h"
#include "tandem/serve/histogram.h"
#include "tandem/serve/model/settings.h"
#include "tandem/serve/model/step_run.h"

namespace tandem::serve {

struct ModelVersion;
using recipe::ModelPort;

class TD_API Ensemble {
 public:
  /// A version of a model, 0: the one that answers what names none; nullptr where none is served.
  using Finder =
      std::function<std::shared_ptr<ModelVersion>(const std::string& model, int64_t version)>;

  struct Step {
    std::shared_ptr<ModelVersion> version;
    std::vector<size_t> inputs;                      ///< tensors, in the model's order
    std::vector<std::pair<size_t, size_t>> outputs;  ///< of the model, and the tensor
    Histogram seconds;
    std::atomic<uint64_t> failed{0};
  };

  /// `outputs`: none for the tensors that no step takes. Throws Value naming what does not fit:
  /// models, inputs and outputs that are not there, tensors that nobody gives or two give, other
  /// dtypes and shapes, steps that wait for one another. Throws Unsupported for a model with state.
  Ensemble(std::string name, const std::vector<EnsembleStep>& steps,
           const std::vector<std::string>& outputs, const Finder& find);

  const std::vector<ModelPort>& inputs() const { return inputs_; }
  const std::vector<ModelPort>& outputs() const { return outputs_; }
  /// In an order in which they can run.
  const std::vector<std::unique_ptr<Step>>& steps() const { return steps_; }
  /// The step that takes all inputs of the ensemble, which no other step takes: what it prepares of
  /// a text or a file stands in their place. nullptr: there is none.
  const Step* front() const { return front_; }
  /// Of the tensors that front()'s model takes, the inputs of the ensemble.
  std::vector<Tensor> inputs_of_front(const std::vector<Tensor>& tensors) const;
  /// `counted`: somebody asked, and the counts of the steps' models grow. What each step took is
  /// added to `took`, if that is given; of a run that throws, the step that failed is the last one.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, bool counted,
                          std::vector<StepRun>* took = nullptr);

 private:
  std::vector<Tensor> run_step(Step& step, const std::vector<Tensor>& inputs, bool counted,
                               StepRun& took) const;
  const Step* find_front() const;
  std::string name_;
  std::vector<ModelPort> inputs_, outputs_;
  std::vector<size_t> input_places_, output_places_;
  size_t tensors_ = 0;
  std::vector<std::unique_ptr<Step>> steps_;
  const Step* front_ = nullptr;
};

}  // namespace tandem::serve
