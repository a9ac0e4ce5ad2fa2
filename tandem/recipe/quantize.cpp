// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/quantize.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>

#include "tandem/base/files/folder.h"
#include "tandem/compile/compile.h"
#include "tandem/onnx/export.h"
#include "tandem/ops/ops.h"
#include "tandem/quant/smooth.h"
#include "tandem/recipe/open_run.h"
#include "tandem/recipe/recipe.h"

namespace tandem::recipe {
namespace {

constexpr int64_t kRows = 32;         ///< of a batch made from arrays
constexpr int64_t kSensitivity = 64;  ///< samples that the layers are compared with

struct Labelled {
  std::vector<Tensor> inputs;
  Tensor labels;  ///< undefined: none
};
using SeeLabelled = std::function<void(const Labelled&)>;

// Batches to calibrate with, and those to evaluate with.
struct Data {
  std::vector<std::vector<Tensor>> calibration;
  std::function<void(const SeeLabelled&)> evaluation;
  std::vector<Tensor> evaluated;  ///< inputs of the first batch that evaluates; empty: not known
};

std::vector<Tensor> narrowed(const std::vector<Tensor>& x, int64_t start, int64_t n) {
  std::vector<Tensor> out;
  for (const Tensor& t : x) out.push_back(t.narrow(0, start, n));
  return out;
}

// The samples of `x` in batches of `rows`; what is left over at the end is a smaller one.
void in_batches(const std::vector<Tensor>& x, int64_t rows,
                const std::function<void(std::vector<Tensor>, int64_t start)>& see) {
  const int64_t n = x.at(0).dim() > 0 ? x[0].size(0) : 0;
  for (const Tensor& t : x)
    TD_CHECK(t.dim() > 0 && t.size(0) == n, Shape,
             "the inputs hold {} and {} samples\nThe first dimension counts them.", n,
             t.dim() > 0 ? t.size(0) : 0);
  for (int64_t at = 0; at < n; at += rows) see(narrowed(x, at, std::min(rows, n - at)), at);
}

class Quantising {
 public:
  Quantising(const ModelSource& source, const std::string& out, const QuantizeFileOptions& o)
      : source_(source), out_(out), o_(o), model_(load_any(source)) {
    TD_CHECK(o.samples > 0, Value,
             "{} samples to calibrate with were asked for, expected more than 0", o.samples);
    TD_CHECK(o.evaluated >= 0, Value,
             "{} samples to evaluate with were asked for, expected 0 (all) or more", o.evaluated);
    TD_CHECK(!o.max_loss || (*o.max_loss >= 0 && *o.max_loss <= 100), Value,
             "a loss of at most {} points was asked for, expected a number from 0 to 100",
             *o.max_loss);
    // Of another file's model only the batch is open, unless no data says what the rest is.
    const bool file = is_graph_file(source.model);
    OnnxFileOptions onnx = o.onnx;
    if (file && onnx.dynamic.empty()) onnx.dynamic = open_sizes_of_file();
    for (size_t i = 0; i < model_.inputs.size(); ++i)
      for (size_t d = 1; file && d < model_.inputs[i].shape.size(); ++d)
        if (model_.inputs[i].shape[d] < 0 && o.onnx.shapes.empty()) open_.emplace_back(i, d);
    export_ = export_options(model_, onnx, !file || !onnx.dynamic.empty());
    export_.external_data = false;
    constexpr int kOtherCodes = 21;  // the first opset with codes of 16 and of 4 bits
    if (o.quant.activations == DType::i16 || (o.quant.weight_bits <= 4 && !o.quant.dynamic))
      export_.opset = std::max(export_.opset, kOtherCodes);
    // One sample at a time where the batch is fixed.
    fixed_ = std::none_of(export_.dynamic.begin(), export_.dynamic.end(),
                          [](const DynamicDim& d) { return d.dim == 0; });
  }

  QuantizeReport run() {
    QuantizeReport report;
    with_data([&](const Data& data) { report = run(data); });
    return report;
  }

 private:
  void with_data(const std::function<void(const Data&)>& use) const;
  Data of_recipe(RecipeParts& parts) const;
  Data of_arrays() const;
  QuantizeReport run(Data data);
  std::vector<std::string> open_sizes_of_file() const;
  void open_sizes(const Data& data);
  void take_sizes(const Data& data);
  void check_sizes_known(const Data& data, const std::string& why) const;
  std::unique_ptr<quant::Network> traced(const quant::Forward& f, Data& data,
                                         QuantizeReport& report);
  QuantizeScore score(const quant::Quantized& q, const Data& data, int64_t most = INT64_MAX) const;
  quant::Quantized best(const quant::Calibrated& c, const Data& data,
                        const std::vector<double>& each, QuantizeReport& report) const;
  void add_for_page(const quant::Calibrated& c, const quant::Quantized& q, const Data& data,
                    QuantizeReport& report) const;
  int64_t rows(const std::vector<Tensor>& x) const {
    return fixed_ ? model_.inputs[0].shape[0] : x[0].size(0);
  }

  ModelSource source_;
  std::string out_;
  QuantizeFileOptions o_;
  LoadedModel model_;
  onnx::OnnxExportOptions export_;
  bool fixed_ = false;
  std::vector<std::pair<size_t, size_t>> open_;  ///< inputs and dimensions of a file, batches aside
};

// As --dynamic has them, under the file's names: the batch, and where each call finds its own
// ranges all sizes.
std::vector<std::string> Quantising::open_sizes_of_file() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < model_.inputs.size(); ++i) {
    const ModelPort& p = model_.inputs[i];
    const std::vector<std::string>& names = model_.runner->model().inputs()[i].type.dim_names;
    for (size_t d = 0;
         d < (o_.quant.dynamic ? p.shape.size() : std::min(p.shape.size(), size_t{1})); ++d) {
      if (p.shape[d] >= 0) continue;
      std::string name = d < names.size() && o_.quant.dynamic ? names[d] : "";
      if (name.empty() || name.find_first_of(":,=") != name.npos)
        name = d == 0 ? "batch" : fmt::format("{}_{}", p.name, d);
      out.push_back(fmt::format("{}:{}={}", p.name, d, name));
    }
  }
  return out;
}

// ---- data

void Quantising::with_data(const std::function<void(const Data&)>& use) const {
  std::string from = o_.data;
  if (from.empty() && is_run(source_.model)) from = source_.model;
  if (from.empty() && o_.quant.dynamic && o_.quant.smooth == 0 && o_.quant.adaround == 0)
    return use({});
  TD_CHECK(!from.empty(), Value,
           "'{}' brings no data to calibrate with\nGive --data: a run's folder, a recipe or inputs "
           "as .npy or .npz.",
           source_.model);
  const bool yaml = from.ends_with(".yaml") || from.ends_with(".yml");
  if (!yaml && !is_run(from)) return use(of_arrays());
  const Recipe recipe = yaml ? Recipe::load(from) : Recipe::load(from + "/recipe.yaml");
  with_recipe(recipe, Registry::standard(false),
              [&](RecipeParts& parts) { use(of_recipe(parts)); });
}

Data Quantising::of_recipe(RecipeParts& parts) const {
  const size_t n = model_.inputs.size();
  Data data;
  int64_t left = o_.samples;
  for (int64_t i = 0; left > 0 && i < parts.data.train.size(); ++i) {
    std::vector<Tensor> batch = parts.data.train.fields(i);
    TD_CHECK(batch.size() >= n, Value,
             "batches of the data have {} fields, the model takes {} inputs", batch.size(), n);
    batch.resize(n);
    const int64_t take = std::min(left, batch[0].size(0));
    in_batches(narrowed(batch, 0, take), rows(batch),
               [&](std::vector<Tensor> x, int64_t) { data.calibration.push_back(std::move(x)); });
    left -= take;
  }
  const data::AnyPipeline& set = parts.data.test  ? *parts.data.test
                                 : parts.data.val ? *parts.data.val
                                                  : parts.data.train;
  if (set.size() > 0) data.evaluated = set.fields(0);
  data.evaluated.resize(std::min(n, data.evaluated.size()));
  data.evaluation = [this, &parts, &set, n](const SeeLabelled& see) {
    int64_t left = o_.evaluated > 0 ? o_.evaluated : INT64_MAX;
    for (int64_t i = 0; left > 0 && i < set.size(); ++i) {
      std::vector<Tensor> batch = set.fields(i);
      const int64_t take = std::min(left, batch.at(0).size(0));
      batch = narrowed(batch, 0, take);
      left -= take;
      Tensor labels;
      if (parts.model.forward) labels = parts.model.forward(batch).second;
      if (labels.defined() && (is_floating(labels.dtype()) || labels.dim() == 0)) labels = Tensor();
      batch.resize(n);
      in_batches(batch, rows(batch), [&](std::vector<Tensor> x, int64_t at) {
        const bool cut = labels.defined() && labels.size(0) == take;
        see({x, cut                   ? labels.narrow(0, at, x[0].size(0))
                : rows(batch) == take ? labels
                                      : Tensor()});
      });
    }
  };
  return data;
}

Data Quantising::of_arrays() const {
  const std::vector<Tensor> all = file_inputs(o_.data, model_);
  Data data;
  // As many samples as were asked for; of a model whose batch is fixed, which may turn out later,
  // whole batches.
  const auto some = [this, all](int64_t most, const auto& see) {
    const int64_t n = all[0].dim() > 0 ? all[0].size(0) : 0, size = fixed_ ? rows(all) : kRows;
    const int64_t most_rows = fixed_ ? (std::min(most, n) + size - 1) / size * size : most;
    const bool fewer = most_rows < n && std::all_of(all.begin(), all.end(), [n](const Tensor& t) {
                         return t.dim() > 0 && t.size(0) == n;
                       });
    in_batches(fewer ? narrowed(all, 0, most_rows) : all, size, see);
  };
  some(o_.samples,
       [&](std::vector<Tensor> x, int64_t) { data.calibration.push_back(std::move(x)); });
  data.evaluation = [this, some](const SeeLabelled& see) {
    some(o_.evaluated > 0 ? o_.evaluated : INT64_MAX, [&](std::vector<Tensor> x, int64_t) {
      see({std::move(x), {}});
    });
  };
  return data;
}

// ---- figures

// Classes are along dimension 1, or the last one where that is how the labels lie.
std::optional<Tensor> largest(const Tensor& y, const Tensor& like) {
  if (y.dim() < 2) return {};
  for (const int d : {1, y.dim() - 1}) {
    const Tensor t = argmax(y, d);
    if (!like.defined() || t.shape() == like.shape()) return t;
  }
  return {};
}
double share(const Tensor& a, const Tensor& b) {
  return mean((a == b).to(DType::f64)).item<double>();
}

QuantizeScore Quantising::score(const quant::Quantized& q, const Data& data, int64_t most) const {
  const NoGradGuard no_grad;
  QuantizeScore s;
  double right_before = 0, right_after = 0, same = 0, labelled = 0, signal = 0, error = 0;
  const CompileOptions fast{.same_bits = false};
  auto before = compile([&](const std::vector<Tensor>& x) { return model_.run(x); }, fast);
  auto after = compile([&](const std::vector<Tensor>& x) { return q(x); }, fast);
  if (data.evaluation)
    data.evaluation([&](const Labelled& batch) {
      if (s.samples >= most) return;
      const Tensor want = before(batch.inputs).at(0), got = after(batch.inputs).at(0);
      const auto n = static_cast<double>(batch.inputs[0].size(0));
      const Tensor x = want.to(DType::f64), e = got.to(DType::f64) - x;
      signal += sum(x * x).item<double>();
      error += sum(e * e).item<double>();
      s.samples += batch.inputs[0].size(0);
      if (const auto a = largest(want, {})) same += n * share(*a, *largest(got, {}));
      if (!batch.labels.defined()) return;
      const auto a = largest(want, batch.labels), b = largest(got, batch.labels);
      if (!a || !b) return;
      const Tensor labels = batch.labels.to(DType::i64);
      labelled += n;
      right_before += n * share(*a, labels);
      right_after += n * share(*b, labels);
    });
  if (s.samples == 0 && o_.quant.dynamic) return s;
  TD_CHECK(s.samples > 0, Value, "there is no data to evaluate with");
  TD_CHECK(std::isfinite(signal) && std::isfinite(error), Value,
           "outputs of {} hold values that are not finite: there is nothing to compare",
           std::isfinite(signal) ? "the quantised model" : "the model");
  s.agreement = same / static_cast<double>(s.samples);
  constexpr double kEqual = 200;
  s.sqnr = error > 0 && signal > 0 ? 10 * std::log10(signal / error) : kEqual;
  if (labelled > 0) s.before = right_before / labelled, s.after = right_after / labelled;
  return s;
}

// The worst layers go back to floating point until the loss is small enough.
quant::Quantized Quantising::best(const quant::Calibrated& c, const Data& data,
                                  const std::vector<double>& each, QuantizeReport& report) const {
  std::vector<size_t> order(each.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return each[a] < each[b]; });
  const size_t stride = 1 + order.size() / 16;
  for (size_t k = 0;; k = std::min(k + stride, order.size())) {
    quant::Quantized q = c.quantised({order.begin(), order.begin() + static_cast<ptrdiff_t>(k)});
    report.score = score(q, data);
    if (!o_.max_loss) return q;
    TD_CHECK(report.score.before, Value,
             "the data has no labels that fit the model's output: there is no accuracy to lose\n"
             "Leave --max-loss out, or give a recipe as --data.");
    report.met = 100 * (*report.score.before - *report.score.after) <= *o_.max_loss;
    if (report.met || k == order.size()) return q;
  }
}

// Why a layer stays in floating point.
std::string reason(const quant::LayerFigures& l, const QuantizeFileOptions& o) {
  if (l.quantised) return "";
  const std::vector<std::string>& asked = o.quant.keep_float;
  if (std::find(asked.begin(), asked.end(), l.name) != asked.end()) return "asked for";
  if (o.quant.dynamic && l.row != "linear" && l.row != "matmul")
    return "each call rounds the inputs of linear layers alone";
  if (o.max_loss)
    return fmt::format("its share of the error was too large for a loss of {:g} points",
                       *o.max_loss);
  return "it was trained in floating point";
}

void Quantising::add_for_page(const quant::Calibrated& c, const quant::Quantized& q,
                              const Data& data, QuantizeReport& report) const {
  constexpr size_t kBins = 128;
  constexpr int64_t kMost = 1024;  // samples for each layer
  report.ranges = c.ranges(q, kBins);
  if (!report.score.before) return;
  for (size_t i = 0; i < report.layers.size(); ++i) {
    std::vector<size_t> others;
    for (size_t k = 0; k < report.layers.size(); ++k)
      if (k != i) others.push_back(k);
    report.alone = score(c.quantised(others), data, kMost);
    report.accuracy.push_back(report.alone.after.value_or(NAN));
  }
}

// Training may see pieces of images and evaluation whole ones. Then sizes that the model leaves
// open are open while it is quantised and in the file.
void Quantising::open_sizes(const Data& data) {
  if (is_graph_file(source_.model) || !o_.onnx.dynamic.empty()) return;
  const auto is_other = [&](const std::vector<Tensor>& x) {
    bool other = false;
    for (size_t i = 0; i < x.size(); ++i) {
      const ModelPort& in = model_.inputs.at(i);
      TD_CHECK(x[i].dim() == static_cast<int>(in.shape.size()), Shape,
               "the data has {} dimensions, the model's input '{}' has {}", x[i].dim(), in.name,
               in.shape.size());
      for (int d = 1; d < x[i].dim(); ++d)
        other = other || x[i].size(d) != in.shape[static_cast<size_t>(d)];
    }
    return other;
  };
  if (!is_other(data.evaluated) &&
      std::none_of(data.calibration.begin(), data.calibration.end(), is_other))
    return;
  OnnxFileOptions all = o_.onnx;
  all.dynamic = {"all"};
  export_.dynamic = export_options(model_, all, true).dynamic;
}

// What a file leaves open, such as the length of texts, is as long as in the data.
void Quantising::take_sizes(const Data& data) {
  if (data.calibration.empty()) return;
  for (const auto& [input, d] : open_) {
    const Tensor& x = data.calibration[0].at(input);
    if (static_cast<int>(d) < x.dim()) model_.inputs[input].shape[d] = x.size(static_cast<int>(d));
  }
}

// What stays open needs no number, all else does. `why`: something could not stay open.
void Quantising::check_sizes_known(const Data& data, const std::string& why) const {
  if (!data.calibration.empty()) return;
  for (const auto& [input, d] : open_) {
    const bool stays = std::any_of(
        export_.dynamic.begin(), export_.dynamic.end(), [&, i = input, d = d](const auto& o) {
          return o.argument == static_cast<int64_t>(i) && o.dim == static_cast<int64_t>(d);
        });
    TD_CHECK(stays, Value,
             "dimension {} of '{}' is open in the file and has to be a number here{}\nGive sizes "
             "as --shapes {}:1x3x32x32, or inputs as --data.",
             d, model_.inputs[input].name, why.empty() ? "" : ": " + why,
             model_.inputs[input].name);
  }
}

// Files may compute sizes from those of their inputs in ways that only numbers go through. Then
// the batch alone is open. A file that computes with that, too, is quantised one sample at a time,
// and the result has the sizes of the data.
std::unique_ptr<quant::Network> Quantising::traced(const quant::Forward& f, Data& data,
                                                   QuantizeReport& report) {
  const auto trace = [&] {
    check_sizes_known(data, report.fixed);
    return std::make_unique<quant::Network>(
        f, onnx::export_specs(random_inputs(model_), export_.dynamic));
  };
  const bool asked = !is_graph_file(source_.model) || !o_.onnx.dynamic.empty();
  while (!asked && !export_.dynamic.empty()) {
    try {
      return trace();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Shape && e.kind() != ErrorKind::Unsupported) throw;
      const std::string why = e.what();
      const size_t others =
          std::erase_if(export_.dynamic, [](const auto& d) { return d.dim != 0; });
      report.fixed =
          fmt::format("with {} open, the model {}", others > 0 ? "all sizes" : "its batch",
                      why.substr(0, why.find('\n')));
      if (others == 0) break;
    }
  }
  if (report.fixed.empty()) return trace();  // as asked for
  export_.dynamic.clear();
  fixed_ = true;
  std::vector<std::vector<Tensor>> single;
  for (const std::vector<Tensor>& x : data.calibration)
    in_batches(x, rows(x),
               [&](std::vector<Tensor> one, int64_t) { single.push_back(std::move(one)); });
  data.calibration = std::move(single);
  return trace();
}

QuantizeReport Quantising::run(Data data) {
  open_sizes(data);
  take_sizes(data);
  QuantizeReport report;
  const quant::Forward forward = [&](std::span<const Tensor> x) {
    return model_.run({x.begin(), x.end()});
  };
  const std::unique_ptr<quant::Network> made = traced(forward, data, report);
  quant::Network& net = *made;
  const std::vector<Tensor> example = random_inputs(model_);
  const auto batches_of = [&](int64_t samples) {
    return [&, samples](const std::function<void(std::span<const Tensor>)>& see) {
      int64_t left = samples;
      for (const std::vector<Tensor>& x : data.calibration) {
        if (left <= 0) return;
        left -= x[0].size(0);
        see(x);
      }
    };
  };
  if (o_.quant.equalise) report.equalised = quant::equalise(net);
  if (o_.quant.smooth != 0)
    report.smoothed = quant::smooth(net, batches_of(INT64_MAX), o_.quant.smooth);
  o_.quant.histograms = o_.page;
  const quant::Calibrated calibrated(net, batches_of(INT64_MAX), o_.quant);
  const std::vector<double> each = calibrated.sensitivity(batches_of(kSensitivity));
  const quant::Quantized q = best(calibrated, data, each, report);
  report.method = to_string(o_.quant.method);
  if (o_.quant.dynamic) report.method = "dynamic";
  if (!net.learned().empty()) report.method = "learned in training, elsewhere " + report.method;
  report.layers = calibrated.figures(q, each);
  for (const quant::LayerFigures& l : report.layers) report.why.push_back(reason(l, o_));
  report.tables = calibrated.tables(q);
  for (size_t i = 0; i < report.tables.size(); ++i)
    report.table_steps.push_back(report.tables[i].quantised ? q.table(i).scale.numel() : 0);
  if (o_.page) add_for_page(calibrated, q, data, report);
  report.weight_bytes_before = net.weight_bytes();
  report.weight_bytes_after = q.weight_bytes();
  const auto written = onnx::export_onnx_function([&](std::span<const Tensor> x) { return q(x); },
                                                  example, out_, export_);
  report.out = out_;
  report.file = fmt::format("{}: {}", out_, written.to_string());
  report.file_bytes = static_cast<int64_t>(written.model_bytes);
  return report;
}

}  // namespace

QuantizeReport quantize_file(const ModelSource& source, const std::string& out,
                             const QuantizeFileOptions& options) {
  TD_CHECK(is_onnx(out), Value, "'{}': the result is an ONNX file\nGive a name like model.onnx.",
           out);
  std::error_code none;
  TD_CHECK(!std::filesystem::equivalent(source.model, out, none), Value,
           "'{}' is the model itself: its weights would be lost\nGive the result another name.",
           out);
  return Quantising(source, out, options).run();
}

// ---- the report

std::string QuantizeReport::to_string() const {
  std::string s =
      fmt::format("{:<28} {:<8} {:>10} {:>10} {:>10} {:>5} {:>10} {:>9} {:>10}\n", "layer", "row",
                  "low", "high", "step", "zero", "bytes", "weight dB", "output dB");
  for (const quant::LayerFigures& l : layers) {
    if (l.quantised && method == "dynamic")
      s += fmt::format("{:<28} {:<8} {:>36} {:>12} {:>9.1f} {:>10.1f}\n", l.name, l.row,
                       "each call its own range", l.bytes, l.weight_sqnr, l.output_sqnr);
    else if (l.quantised)
      s += fmt::format(
          "{:<28} {:<8} {:>10.4g} {:>10.4g} {:>10.4g} {:>5} {:>10} {:>9.1f} {:>10.1f}\n", l.name,
          l.row, l.range.low, l.range.high, l.step.scale, l.step.zero, l.bytes, l.weight_sqnr,
          l.output_sqnr);
    else
      s += fmt::format("{:<28} {:<8} {:>36} {:>12} {:>9} {:>10.1f}\n", l.name, l.row,
                       "in floating point", l.bytes, "", l.output_sqnr);
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    const quant::TableFigures& t = tables[i];
    const char* how = !t.quantised            ? "in floating point"
                      : table_steps.at(i) > 1 ? "a step for each column"
                                              : "one step";
    s += fmt::format("{:<28} {:<8} {:>36} {:>12} {:>9}\n", t.name, "lookup", how, t.bytes,
                     t.quantised ? fmt::format("{:.1f}", t.weight_sqnr) : "");
  }
  s += fmt::format(
      "weights: {} bytes of {}, {:+.1f} %; file: {} bytes\n", weight_bytes_after,
      weight_bytes_before,
      100.0 *
          (static_cast<double>(weight_bytes_after) / static_cast<double>(weight_bytes_before) - 1),
      file_bytes);
  if (equalised > 0) s += fmt::format("equalised: {} pairs of layers\n", equalised);
  if (smoothed > 0) s += fmt::format("smoothed: the inputs of linear layers, {}\n", smoothed);
  if (score.before)
    s += fmt::format("accuracy on {} samples: {:.2f} % before, {:.2f} % after, {:+.2f} points\n",
                     score.samples, 100 * *score.before, 100 * *score.after,
                     100 * (*score.after - *score.before));
  if (score.samples > 0)
    s += fmt::format("outputs: {:.1f} dB, the same largest one for {:.2f} % of {} samples ({})\n",
                     score.sqnr, 100 * score.agreement, score.samples, method);
  if (!fixed.empty()) s += "sizes that should be open are fixed: " + fixed + "\n";
  return s + file + "\n";
}

io::Json QuantizeReport::to_json() const {
  io::Json::Array rows;
  for (const quant::LayerFigures& l : layers) {
    io::Json::Object row = {{"name", l.name},
                            {"row", l.row},
                            {"quantised", l.quantised},
                            {"bytes", l.bytes},
                            {"output_sqnr", l.output_sqnr}};
    if (!why.at(rows.size()).empty()) row.emplace_back("why", why[rows.size()]);
    if (l.quantised)
      for (const auto& [key, value] : {std::pair("low", l.range.low),
                                       {"high", l.range.high},
                                       {"scale", static_cast<double>(l.step.scale)},
                                       {"zero", static_cast<double>(l.step.zero)},
                                       {"weight_sqnr", l.weight_sqnr}})
        row.emplace_back(key, value);
    rows.emplace_back(std::move(row));
  }
  io::Json::Object all = {{"method", method},
                          {"weight_bytes_before", weight_bytes_before},
                          {"weight_bytes_after", weight_bytes_after},
                          {"file_bytes", file_bytes},
                          {"samples", score.samples},
                          {"agreement", score.agreement},
                          {"sqnr", score.sqnr},
                          {"met", met},
                          {"fixed_sizes", !fixed.empty()}};
  if (score.before) {
    all.emplace_back("accuracy_before", *score.before);
    all.emplace_back("accuracy_after", *score.after);
  }
  all.emplace_back("layers", std::move(rows));
  io::Json::Array looked_up;
  for (const quant::TableFigures& t : tables)
    looked_up.emplace_back(io::Json::Object{{"name", t.name},
                                            {"quantised", t.quantised},
                                            {"bytes", t.bytes},
                                            {"weight_sqnr", t.weight_sqnr}});
  all.emplace_back("tables", std::move(looked_up));
  return all;
}

}  // namespace tandem::recipe
