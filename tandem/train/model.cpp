// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/model.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/ops.h"
#include "tandem/train/device_strategies.h"
#include "tandem/train/keras_names_internal.h"
#include "tandem/train/layer_figures.h"

namespace tandem::train {
namespace {

using data::detail::StageRef;

// Rows of tensors with one first size: the fields of samples.
StageRef rows_of(const std::vector<Tensor>& fields) {
  const int64_t n = fields[0].size(0);
  for (const Tensor& t : fields)
    TD_CHECK(t.dim() >= 1 && t.size(0) == n, Shape,
             "fit() expects as many rows of each, got {} of x and {} of another", n,
             t.dim() >= 1 ? t.size(0) : 0);
  return data::detail::source_stage(
      n,
      [fields](int64_t i) {
        std::vector<Tensor> out;
        for (const Tensor& t : fields) out.push_back(t.select(0, i));
        return out;
      },
      [fields](std::span<const int64_t> rows) {
        const Tensor index = tensor(std::vector<int64_t>(rows.begin(), rows.end()));
        std::vector<Tensor> out;
        for (const Tensor& t : fields) out.push_back(t.index_select(0, index));
        return out;
      },
      "tensors");
}

data::AnyPipeline batches_of(std::vector<Tensor> fields, int64_t size, bool shuffle) {
  TD_CHECK(size >= 1, Value, "batch_size expects at least 1, got {}", size);
  for (Tensor& t : fields) {
    TD_CHECK(t.defined() && t.dim() >= 1, Shape, "x and y expect a first dimension of samples");
    t = t.detach();
  }
  StageRef s = rows_of(fields);
  if (shuffle) s = data::detail::shuffle_stage(std::move(s));
  return {data::detail::batch_stage(std::move(s), size, {}), data::detail::seed_or_draw({}), {}};
}

// The weight of each row's label.
Tensor weights_of(const Tensor& y, const std::map<int64_t, double>& table) {
  TD_CHECK(!is_floating(y.dtype()) && (y.dim() == 1 || (y.dim() == 2 && y.size(1) == 1)), Value,
           "class_weight expects labels [n] of integers, got {} {}", to_string(y.dtype()),
           y.shape().to_string());
  std::vector<float> w;
  for (int64_t label : y.reshape({-1}).to(DType::i64).to_vector<int64_t>()) {
    const auto it = table.find(label);
    w.push_back(it == table.end() ? 1.0F : static_cast<float>(it->second));
  }
  return tensor(w);
}

Logs keras_logs(const Logs& logs) {
  Logs out;
  for (const auto& [name, value] : logs) out.emplace_back(keras_name(name), value);
  return out;
}

}  // namespace

struct Model::Compiled {
  CompileModelOptions options;
  std::function<Tensor(const Batch&)> forward;
  size_t inputs = 1;
  std::unique_ptr<optim::Optimizer> own;
  optim::Optimizer* optimizer = nullptr;
  std::unique_ptr<Trainer> trainer;

  StepOutput step(const Batch& b) const;
};

// Keras's "sum over batch size": weights scale the samples, the number of samples divides.
StepOutput Model::Compiled::step(const Batch& b) const {
  const Tensor given = forward(b);
  // predict() has inputs alone.
  if (b.size() <= inputs) return {zeros({}), given, Tensor(), given};
  LossParts p = loss_parts(options.loss, options.from_logits, given, b[inputs]);
  const Tensor loss = mean_loss(p.loss, b.size() > inputs + 1 ? b[inputs + 1] : Tensor());
  return {loss, p.output, p.target, given};
}

Model::Model(nn::Module& net, std::function<Tensor(const Batch&)> forward, int64_t inputs) {
  TD_CHECK(inputs >= 1 && forward, Value, "Model expects a function and at least one input");
  take(net, std::move(forward), {});
  inputs_ = inputs;
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

void Model::take(nn::Module& net, std::function<Tensor(const Batch&)> forward,
                 std::shared_ptr<void> own) {
  net_ = &net;
  own_ = std::move(own);
  forward_ = std::move(forward);
}

void Model::compile(CompileModelOptions o) {
  TD_CHECK(o.loss.function || !o.loss.name.empty(), Value,
           "compile() expects a loss, by name (\"mse\") or as a function of output and target");
  const DeviceStrategy* strategy = DeviceStrategy::current();
  if (strategy) net_->to(strategy->device());
  auto c = std::make_shared<Compiled>();
  c->forward = forward_;
  c->inputs = static_cast<size_t>(inputs_);
  if (o.optimizer.given) {
    c->optimizer = o.optimizer.given;
  } else {
    c->own = o.optimizer.make(net_->parameters());
    c->optimizer = c->own.get();
  }
  TrainerOptions t{.max_epochs = 1,
                   .accumulate = o.gradient_accumulation_steps,
                   .clip_norm = o.global_clipnorm,
                   .compile = !o.run_eagerly,
                   .strategy = strategy ? TrainStrategy::ddp : TrainStrategy::automatic,
                   .progress = false,
                   .validation = {.sanity_batches = 0}};
  for (const std::string& m : o.metrics) t.metrics.push_back(metric_by_keras_name(m));
  c->options = std::move(o);
  Compiled* raw = c.get();
  c->trainer = std::make_unique<Trainer>(
      *net_, [raw](const Batch& b) { return raw->step(b); }, *c->optimizer, t);
  compiled_ = std::move(c);
}

Model::Compiled& Model::compiled() const {
  TD_CHECK(compiled_, Value,
           "the model is not compiled\nSay how to train: model.compile({{.optimizer = \"adam\", "
           ".loss = \"mse\"}}).");
  return *compiled_;
}
optim::Optimizer& Model::optimizer() const { return *compiled().optimizer; }
Trainer& Model::trainer() const { return *compiled().trainer; }

std::shared_ptr<History> Model::fit(const Tensor& x, const Tensor& y, const FitOptions& o) {
  compiled();
  TD_CHECK(inputs_ == 1, Value, "a model of {} inputs is trained on a pipeline", inputs_);
  TD_CHECK(o.validation_split >= 0 && o.validation_split < 1, Value,
           "validation_split expects a number from 0 to below 1, got {}", o.validation_split);
  std::vector<Tensor> fields{x, y};
  if (o.sample_weight.defined()) fields.push_back(o.sample_weight);
  if (!o.class_weight.empty()) {
    const Tensor w = weights_of(y, o.class_weight);
    if (fields.size() > 2)
      fields[2] = fields[2].to(DType::f32) * w;
    else
      fields.push_back(w);
  }
  rows_of(fields);  // sizes agree
  std::optional<data::AnyPipeline> val;
  const int64_t val_batch = o.validation_batch_size > 0 ? o.validation_batch_size : o.batch_size;
  const ValidationData& v = o.validation_data;
  if (v.data) {
    val = v.data;
  } else if (v.x.defined()) {
    std::vector<Tensor> evaluated{v.x, v.y};
    if (v.sample_weight.defined()) evaluated.push_back(v.sample_weight);
    val = batches_of(evaluated, val_batch, false);
  } else if (o.validation_split > 0) {
    const int64_t n = x.size(0);
    const auto kept = static_cast<int64_t>(static_cast<double>(n) * (1 - o.validation_split));
    TD_CHECK(kept > 0 && kept < n, Value, "validation_split {} leaves nothing of {} samples",
             o.validation_split, n);
    std::vector<Tensor> evaluated;
    for (size_t i = 0; i < fields.size(); ++i) {
      // Class weights are for training alone; sample weights count in both.
      if (i < 2) evaluated.push_back(fields[i].narrow(0, kept, n - kept));
      if (i == 2 && o.sample_weight.defined())
        evaluated.push_back(o.sample_weight.narrow(0, kept, n - kept));
      fields[i] = fields[i].narrow(0, 0, kept);
    }
    val = batches_of(evaluated, val_batch, false);
  }
  return run(batches_of(fields, o.batch_size, o.shuffle), val, o);
}

std::shared_ptr<History> Model::fit(data::AnyPipeline batches, const FitOptions& o) {
  compiled();
  TD_CHECK(o.validation_split == 0 && !o.sample_weight.defined(), Value,
           "validation_split and sample_weight go with tensors; a pipeline has a third field for "
           "the weights");
  if (!o.class_weight.empty()) {
    const auto at = static_cast<size_t>(inputs_);
    auto add = [table = o.class_weight, at](std::vector<Tensor> f) {
      TD_CHECK(f.size() > at, Value, "class_weight expects batches with labels, got {} field(s)",
               f.size());
      const Tensor w = weights_of(f[at], table);
      if (f.size() > at + 1)
        f[at + 1] = f[at + 1].to(DType::f32) * w;
      else
        f.push_back(w);
      return f;
    };
    batches = data::AnyPipeline(data::detail::map_stage(batches.stage(), std::move(add)),
                                batches.seed(), batches.prefetch_options());
  }
  std::optional<data::AnyPipeline> val = o.validation_data.data;
  if (!val && o.validation_data.x.defined()) {
    std::vector<Tensor> evaluated{o.validation_data.x, o.validation_data.y};
    if (o.validation_data.sample_weight.defined())
      evaluated.push_back(o.validation_data.sample_weight);
    val = batches_of(evaluated,
                     o.validation_batch_size > 0 ? o.validation_batch_size : o.batch_size, false);
  }
  return run(std::move(batches), val, o);
}

std::shared_ptr<History> Model::run(data::AnyPipeline train, std::optional<data::AnyPipeline> val,
                                    const FitOptions& o) {
  Trainer& t = trainer();
  TrainerOptions& r = t.options();
  r.max_epochs = o.epochs;
  r.limits.train_batches = o.steps_per_epoch;
  r.limits.val_batches = o.validation_steps;
  r.validation.every_epochs = std::max<int64_t>(o.validation_freq, 1);
  r.saving.folder.clear();
  r.saving.every_steps = 0;
  if (o.initial_epoch > 0) train.set_epoch(o.initial_epoch);
  if (train.size() > 0) sample_ = train.fields(0, o.initial_epoch)[0].narrow(0, 0, 1);
  auto history = std::make_shared<History>();
  t.clear_callbacks();
  t.add(history);
  if (o.verbose > 0) t.add(std::make_shared<ProgbarLogger>(o.verbose == 1));
  for (const auto& c : o.callbacks) t.add(c);
  t.fit(std::move(train), std::move(val));
  return history;
}

Logs Model::evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& o) {
  std::vector<Tensor> fields{x, y};
  if (o.sample_weight.defined()) fields.push_back(o.sample_weight);
  return evaluate(batches_of(fields, o.batch_size, false), o);
}
Logs Model::evaluate(data::AnyPipeline batches, const EvaluateOptions& o) {
  return keras_logs(trainer().validate(std::move(batches), "", o.steps));
}

Tensor Model::predict(const Tensor& x, const PredictOptions& o) {
  return predict(batches_of({x}, o.batch_size, false));
}
Tensor Model::predict(data::AnyPipeline batches) {
  if (compiled_) return trainer().predict(std::move(batches));
  // Without compile(): a step that has no loss.
  optim::SGD none(net_->parameters());
  Trainer t(*net_,
            [this](const Batch& b) {
              const Tensor y = forward_(b);
              return StepOutput{zeros({}), y, Tensor(), y};
            },
            none, {.progress = false});
  return t.predict(std::move(batches));
}

double Model::train_on_batch(const Tensor& x, const Tensor& y) { return trainer().update({x, y}); }

std::string Model::summary(const std::vector<int64_t>& input) {
  Tensor x = sample_;
  if (!input.empty()) {
    std::vector<int64_t> shape{1};
    shape.insert(shape.end(), input.begin(), input.end());
    x = zeros(Shape(std::span<const int64_t>(shape)));
  }
  auto run = [&] { return x.defined() ? forward_({x}) : zeros({}); };
  return summary_table(model_figures(*net_, run, {.gradients = false, .statistics = false}),
                       net_->type());
}

void Model::save_weights(const FilePath& path) const { tandem::save(net_->state_dict(), path); }
void Model::load_weights(const FilePath& path) { net_->load_state_dict(tandem::load(path)); }

}  // namespace tandem::train
