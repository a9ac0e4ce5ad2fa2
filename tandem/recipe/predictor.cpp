// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/predictor.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "tandem/graph/context.h"
#include "tandem/io/image.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/compiled_forward.h"
#include "tandem/recipe/components/characters_internal.h"
#include "tandem/recipe/open_run.h"
#include "tandem/recipe/sample_model.h"

namespace tandem::recipe {

namespace {

using Outputs = std::vector<Tensor>;

// A run's model is called as its evaluation calls it, which gives the same bits.
bool runs_compiled(const LoadedModel& model) {
  const io::Yaml* trainer = model.opened ? model.opened->recipe.root.find("trainer") : nullptr;
  return Options(trainer, "trainer", "").flag("compile", true);
}

bool is_array_file(const std::string& path) {
  return path.ends_with(".npz") || path.ends_with(".safetensors") || path.ends_with(".npy");
}
bool is_image_file(const std::string& path) {
  for (const char* end : {".png", ".jpg", ".jpeg", ".PNG", ".JPG", ".JPEG"})
    if (path.ends_with(end)) return true;
  return false;
}

// By the recipe's loss; where it takes any target, by the target's dtype.
Answer answer_of(const OpenedRun& run) {
  const io::Yaml* part = run.recipe.root.find("loss");
  if (!part) return Answer::classes;
  const std::string loss = Options(part, "loss", run.recipe.file).text("type", "");
  for (const char* name : {"cross_entropy", "nll", "multi_margin"})
    if (loss == name) return Answer::classes;
  for (const char* name :
       {"bce_with_logits", "soft_margin", "multilabel_soft_margin", "focal", "dice", "tversky"})
    if (loss == name) return Answer::chances;
  const size_t target = run.model.predict_fields.size();
  const bool labels =
      target < run.data.fields.size() && !is_floating(run.data.fields[target].dtype);
  return labels ? Answer::classes : Answer::numbers;
}

std::vector<std::string> labels_of(const OpenedRun* run, bool characters) {
  if (!run) return {};
  if (!characters) return run->data.facts.classes;
  std::vector<std::string> out;
  const Characters known(run->data.facts.characters);
  for (size_t i = 0; i < run->data.facts.characters.size(); ++i)
    out.push_back(known.shown(static_cast<int64_t>(i)));
  return out;
}
std::string label_at(const std::vector<std::string>& names, int64_t i) {
  return i >= 0 && static_cast<size_t>(i) < names.size() ? names[static_cast<size_t>(i)]
                                                         : std::to_string(i);
}

// Whether the rows of [n, classes] are distributions already.
bool are_distributions(const Tensor& y) {
  if (y.numel() == 0) return false;
  const Tensor sums = y.sum({1});
  return y.amin().item<float>() >= 0 && (sums - 1).abs().amax().item<float>() <= 1e-3F;
}

// Scores of a model that says nothing about them are logits, unless they add up to 1.
Tensor chances_of(const Tensor& y, Scores scores) {
  if (scores == Scores::log_probabilities) return y.exp();
  const bool ready = scores == Scores::probabilities || are_distributions(y);
  return ready ? y : softmax(y, 1);
}

// [n, classes] as lists, likeliest first.
std::vector<std::vector<ScoredClass>> scored(const Tensor& chances,
                                             const std::vector<std::string>& names) {
  std::vector<std::vector<ScoredClass>> out;
  for (int64_t n = 0; n < chances.size(0); ++n) {
    const auto [values, places] = topk(chances.select(0, n), chances.size(1));
    const auto scores = values.contiguous().to_vector<float>();
    const auto indices = places.contiguous().to_vector<int64_t>();
    std::vector<ScoredClass>& row = out.emplace_back();
    for (size_t i = 0; i < scores.size(); ++i)
      row.push_back({indices[i], label_at(names, indices[i]), scores[i]});
  }
  return out;
}

}  // namespace

std::string Prediction::to_string(int64_t top) const {
  std::string out;
  const auto row_name = [](size_t rows, size_t n) {
    return rows > 1 ? fmt::format("{:<4}", n) : std::string();
  };
  const size_t most = top > 0 ? static_cast<size_t>(top) : 5;
  for (size_t n = 0; n < classes.size(); ++n)
    for (size_t i = 0; i < std::min(most, classes[n].size()); ++i)
      out += fmt::format("{}{:<{}} {:.4f}\n", row_name(classes.size(), n), classes[n][i].label,
                         named_ ? 12 : 6, classes[n][i].score);
  for (size_t n = 0; n < numbers.size(); ++n) {
    std::string line = row_name(numbers.size(), n);
    for (const double v : numbers[n]) line += fmt::format("{}{:.6g}", line.empty() ? "" : " ", v);
    out += line + "\n";
  }
  for (size_t n = 0; n < boxes.size(); ++n) {
    const std::string row = row_name(boxes.size(), n);
    if (boxes[n].empty()) out += fmt::format("{}no box has a score of {} or more\n", row, score_);
    for (size_t k = 0; k < boxes[n].size() && (top == 0 || k < static_cast<size_t>(top)); ++k) {
      out += fmt::format("{}{:<12} {:.4f}", row, boxes[n][k].label, boxes[n][k].score);
      for (const double c : boxes[n][k].corners) out += fmt::format(" {:8.1f}", c);
      out += "\n";
    }
  }
  if (kind == PredictionKind::image || kind == PredictionKind::arrays)
    for (const auto& [name, y] : outputs)
      out += fmt::format("{} {} {}\n", name, tandem::to_string(y.dtype()), shape_text(y.shape()));
  return out;
}

struct Predictor::State {
  LoadedModel model;
  PredictorOptions options;
  std::mutex preparing;  ///< until it is made
  std::optional<Preparation> preparation = {};
  Answer answer = Answer::classes;
  std::function<Outputs(const Outputs&)> forward;
  std::optional<CompiledForward> compiled = {};

  State(LoadedModel m, const PredictorOptions& o) : model(std::move(m)), options(o) {
    answer = model.opened && model.opened->model.predict ? answer_of(*model.opened) : model.answer;
    if (!runs_compiled(model)) {
      forward = model.run;
      return;
    }
    compiled.emplace(model);
    forward = [this](const Outputs& in) { return (*compiled)(in); };
  }

  const OpenedRun* run() const { return model.opened.get(); }

  // The model's way of preparing what it is given.
  const Preparation& prepare(const std::string& name) {
    const std::lock_guard hold(preparing);
    if (!preparation) preparation = preparation_of(model);
    TD_CHECK(
        preparation->kind == SampleKind::image || !is_image_file(name), Unsupported,
        "the run's data is of type '{}', whose samples are not images\nGive an .npy file, or a "
        "file of what it was trained on.",
        data_type(*run()));
    return *preparation;
  }

  Outputs outputs_of(const Outputs& inputs) {
    const NoGradGuard no_grad;
    const AutocastGuard autocast(DType::bf16, options.bf16);
    if (is_host(model.device)) return forward(inputs);
    Outputs there = inputs;
    for (Tensor& x : there) x = x.to(model.device);
    Outputs out = forward(there);
    for (Tensor& y : out) y = y.cpu();
    return out;
  }

  Prediction answer_to(const Outputs& inputs, const PreparedBatch* prepared) {
    return meaning(outputs_of(inputs), prepared);
  }

  Prediction meaning(const Outputs& outputs, const PreparedBatch* prepared) {
    const NoGradGuard no_grad;
    const AutocastGuard autocast(DType::bf16, options.bf16);
    Prediction p;
    for (size_t i = 0; i < outputs.size(); ++i)
      p.outputs.emplace_back(model.outputs.at(i).name, outputs[i]);
    const Tensor& y = outputs.at(0);
    const OpenedRun* r = run();
    if (r && r->model.boxes) {
      boxes(p, y, prepared);
    } else if (r && r->model.image) {
      p.kind = PredictionKind::image;
      if (y.size(0) == 1) p.image = r->model.image(y);
    } else {
      rows(p, y);
    }
    return p;
  }

  void rows(Prediction& p, const Tensor& y) const {
    // Of text the row of the last character says which one follows.
    const bool characters = run() && !run()->data.facts.characters.empty() && y.dim() == 3;
    if ((!characters && y.dim() != 2) || answer == Answer::values) return;
    const Tensor last = (characters ? y.select(1, -1) : y).to(float32);
    const std::vector<std::string> names = run() ? labels_of(run(), characters) : model.labels;
    if (answer == Answer::numbers) {
      p.kind = PredictionKind::numbers;
      for (int64_t n = 0; n < last.size(0); ++n) {
        const auto row = last.select(0, n).contiguous().to_vector<float>();
        p.numbers.emplace_back(row.begin(), row.end());
      }
      return;
    }
    p.kind = PredictionKind::classes;
    p.named_ = !names.empty();
    p.classes = scored(answer == Answer::chances ? sigmoid(last)
                       : run()                   ? softmax(last, 1)
                                                 : chances_of(last, model.scores),
                       names);
  }

  // In pixels of the image that was given, where they lead back to it.
  void boxes(Prediction& p, const Tensor& y, const PreparedBatch* prepared) const {
    p.kind = PredictionKind::boxes;
    p.score_ = options.score;
    std::array<double, 4> from{1, 0, 1, 0};
    if (prepared && prepared->origin)
      from = *prepared->origin;
    else if (prepared)
      p.note = fmt::format("pixels are those of the image as it was prepared, {} x {} (h, w)",
                           prepared->fields.at(0).size(2), prepared->fields.at(0).size(3));
    for (int64_t n = 0; n < y.size(0); ++n) {
      const FoundBoxes found = run()->model.boxes(y.narrow(0, n, 1), options.score);
      const auto corners = found.boxes.to_vector<float>(), scores = found.scores.to_vector<float>();
      const auto labels = found.labels.to_vector<int64_t>();
      std::vector<PredictedBox>& all = p.boxes.emplace_back();
      for (size_t k = 0; k < scores.size(); ++k) {
        PredictedBox& box = all.emplace_back();
        box = {labels[k], label_at(run()->data.facts.classes, labels[k]), scores[k]};
        for (size_t c = 0; c < 4; ++c)
          box.corners[c] = corners[4 * k + c] * from[c % 2 * 2] + from[c % 2 * 2 + 1];
      }
    }
  }
};

Predictor::Predictor(const std::string& run, const PredictorOptions& options)
    : Predictor(load_run(run, options.weights, options.device), options) {}
Predictor::Predictor(LoadedModel model, const PredictorOptions& options)
    : state_(std::make_shared<State>(std::move(model), options)) {}

const LoadedModel& Predictor::model() const { return state_->model; }
std::string Predictor::note() const {
  return state_->compiled ? state_->compiled->note() : std::string();
}

Prediction Predictor::file(const FilePath& path) {
  if (is_array_file(path.str()))
    return state_->answer_to(file_inputs(path.str(), state_->model), nullptr);
  return bytes(make_ref<MappedFile>(path)->view(), path.str());
}

Prediction Predictor::bytes(std::string_view bytes, const std::string& name) {
  const PreparedBatch prepared = prepare(bytes, name);
  return state_->answer_to({prepared.fields.begin(), prepared.fields.end()}, &prepared);
}

std::vector<Tensor> Predictor::forward(const std::vector<Tensor>& inputs) {
  return state_->outputs_of(inputs);
}

Prediction Predictor::answer(const std::vector<Tensor>& outputs, const PreparedBatch* prepared) {
  return state_->meaning(outputs, prepared);
}

PreparedBatch Predictor::prepare(std::string_view bytes, const std::string& name) {
  const NoGradGuard no_grad;
  const std::vector<ModelPort>& ports = state_->model.inputs;
  PreparedBatch prepared = state_->prepare(name).read(bytes, name);
  TD_CHECK(prepared.fields.size() == ports.size(), Internal, "{} inputs were prepared of {}",
           prepared.fields.size(), ports.size());
  for (size_t i = 0; i < ports.size(); ++i)
    prepared.fields[i] = prepared.fields[i].to(ports[i].dtype);
  return prepared;
}

Prediction Predictor::image(const Tensor& image) {
  return bytes(io::encode_png(image), "the image.png");
}

Prediction Predictor::arrays(std::vector<Tensor> inputs) {
  const std::vector<ModelPort>& ports = state_->model.inputs;
  TD_CHECK(inputs.size() == ports.size(), Value, "the model takes {} inputs, got {}", ports.size(),
           inputs.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    inputs[i] = inputs[i].to(ports[i].dtype);
    if (inputs[i].dim() + 1 == static_cast<int64_t>(ports[i].shape.size()))
      inputs[i] = inputs[i].unsqueeze(0);
  }
  return state_->answer_to(inputs, nullptr);
}

}  // namespace tandem::recipe
