// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/calibrate.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/nearest.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tandem/quant/adaround.h"
#include "tandem/quant/roles.h"

namespace tandem::quant {
namespace {

// Sees the values of a plan's sites, each once in a run.
class Watching : public Walk {
 public:
  using Look = std::function<void(const Site&, const Tensor&)>;
  Watching(const Network& net, const Plan& plan, Look look)
      : Walk(net), plan_(plan), look_(std::move(look)) {}

  std::vector<Tensor> run(std::span<const Tensor> inputs) override {
    done_.assign(plan_.sites().size(), 0);
    std::vector<Tensor> out = Walk::run(inputs);
    for (size_t i = 0; i < out.size(); ++i) look(plan_.output_site(i), out[i]);
    return out;
  }

 protected:
  void operands(const Node& n, std::span<Tensor> in) override {
    for (size_t i = 0; i < in.size(); ++i) look(plan_.site_at(n, i), in[i]);
  }

 private:
  void look(int site, const Tensor& x) {
    if (site < 0 || std::exchange(done_[static_cast<size_t>(site)], 1)) return;
    look_(plan_.sites()[static_cast<size_t>(site)], x);
  }
  const Plan& plan_;
  Look look_;
  std::vector<char> done_;
};

struct Power {
  double signal = 0, error = 0;
  void add(const Tensor& want, const Tensor& got) {
    const Tensor x = want.to(DType::f64), e = got.to(DType::f64) - x;
    signal += sum(x * x).item<double>();
    error += sum(e * e).item<double>();
  }
  double decibels() const {
    constexpr double kEqual = 200;
    if (error == 0) return kEqual;
    return signal == 0 ? -kEqual : 10 * std::log10(signal / error);
  }
};

// For each layer, the mean over samples and positions of what rounding its weight takes from its
// result, on the inputs that it gets in the quantised network.
class MeanErrors : public QuantizedWalk {
 public:
  explicit MeanErrors(const Quantized& q) : QuantizedWalk(q), sums_(net_.layers().size()) {}
  int64_t samples = 0;  ///< so far
  int64_t batch = 1;    ///< samples of this one
  Tensor mean(size_t index) const {
    return sums_[index].defined() ? sums_[index] / static_cast<double>(samples) : Tensor();
  }

 protected:
  Tensor layer(size_t index, const Tensor& x) override {
    const Tensor y = QuantizedWalk::layer(index, x);
    if (!q_.codes(index).weight.defined()) return y;
    const Layer& l = net_.layers()[index];
    const Tensor lost = Walk::layer(index, x) - y;
    IntList others;
    for (int d = 0; d < lost.dim(); ++d)
      if (d != result_axis(l)) others.push_back(d);
    const Tensor m =
        (others.empty() ? lost : tandem::mean(lost, others)) * static_cast<double>(batch);
    sums_[index] = sums_[index].defined() ? sums_[index] + m : m;
    return y;
  }

 private:
  std::vector<Tensor> sums_;
};

// The results of nodes in floating point, as many as fit.
class Recording : public Walk {
 public:
  explicit Recording(const Network& net) : Walk(net), results_(net.graph().nodes.size()) {}
  void after(const Node& n, Tensor* out) override {
    constexpr size_t kMostBytes = size_t{1} << 30;
    for (size_t o = 0; o < n.out.size(); ++o)
      if (out[o].defined()) bytes_ += static_cast<size_t>(out[o].numel()) * size_of(out[o].dtype());
    if (bytes_ <= kMostBytes) results_[n.index].assign(out, out + n.out.size());
  }
  const std::vector<Tensor>& of(const Node& n) const { return results_[n.index]; }

 private:
  std::vector<std::vector<Tensor>> results_;
  size_t bytes_ = 0;
};

// A network with few layers in codes: what does not follow from them is as recorded.
class FewInCodes : public QuantizedWalk {
 public:
  FewInCodes(const Quantized& q, const Recording& known)
      : QuantizedWalk(q), known_(known), changed_(q.network().graph().nodes.size()) {}
  bool before(const Node& n, std::span<Tensor> in, Tensor* out) override {
    const int layer = net_.layer_at(n);
    bool changed = layer >= 0 && q_.codes(static_cast<size_t>(layer)).weight.defined();
    for (size_t i = 0; i < in.size(); ++i)
      changed = changed || q_.plan().site_at(n, i) >= 0 ||
                (n.in[i].from && changed_[n.in[i].from->index]);
    changed_[n.index] = changed;
    const std::vector<Tensor>& known = known_.of(n);
    if (changed || known.empty()) return QuantizedWalk::before(n, in, out);
    std::copy(known.begin(), known.end(), out);
    return true;
  }

 private:
  const Recording& known_;
  std::vector<char> changed_;
};

// What one layer reads.
template <class Base>
class Reading : public Base {
 public:
  template <class Of>
  Reading(const Of& of, size_t index) : Base(of), index_(index) {}
  Tensor operator()(std::span<const Tensor> inputs) {
    this->run(inputs);
    return x_;
  }

 protected:
  Tensor layer(size_t index, const Tensor& x) override {
    if (index == index_) x_ = x;
    return Base::layer(index, x);
  }

 private:
  size_t index_;
  Tensor x_;
};

// By source. Values that pass unchanged have the step of where they came from, whichever of them
// learned it.
std::map<int, Step> learned_steps(const Network& net, const Plan& plan) {
  std::map<int, Step> out;
  for (const Site& s : plan.sites()) {
    const auto at = net.learned().find(s.value);
    if (at == net.learned().end()) continue;
    const auto [have, is_new] = out.emplace(s.source, at->second);
    if (!is_new && have->second.scale < at->second.scale) have->second = at->second;
  }
  return out;
}

}  // namespace

double sqnr(std::span<const Tensor> want, std::span<const Tensor> got) {
  Power p;
  for (size_t i = 0; i < want.size(); ++i) p.add(want[i], got[i]);
  return p.decibels();
}

std::vector<char> Calibrated::wanted() const {
  const std::vector<Layer>& layers = net_.layers();
  const auto has_scale = [](const Layer& l) { return l.scale.defined(); };
  const bool trained = std::any_of(layers.begin(), layers.end(), has_scale);
  std::vector<char> on;
  for (const Layer& l : layers)
    on.push_back((!trained || has_scale(l)) && (!options_.dynamic || multiplies_rows(l)));
  std::vector<std::string> names;
  for (const Layer& l : layers) names.push_back(l.name);
  for (const Table& t : net_.tables()) names.push_back(t.name);
  for (const std::string& keep : options_.keep_float) {
    const auto at = std::find(names.begin(), names.end(), keep);
    const std::string near = at == names.end() ? nearest_word(keep, names) : "";
    TD_CHECK(
        at != names.end(), Value, "no layer is called '{}'{}", keep,
        near.empty() ? "\nThe report lists the layers by name." : "\nDid you mean '" + near + "'?");
    if (const auto i = static_cast<size_t>(at - names.begin()); i < on.size()) on[i] = 0;
  }
  return on;
}

Plan Calibrated::plan_for(const std::vector<char>& on) const {
  return Plan(net_, on, options_.outputs, options_.dynamic);
}

Calibrated::Calibrated(Network& net, const Batches& batches, const QuantizeOptions& options)
    : net_(net), options_(options) {
  const DType t = options.activations;
  TD_CHECK(t == DType::u8 || t == DType::i8 || t == DType::i16, DType,
           "activations of {} were asked for, expected uint8, int8 or int16", tandem::to_string(t));
  TD_CHECK(t != DType::i16 || net.learned().empty(), Value,
           "the network was trained for activations of 8 bits\nLeave int16 out.");
  TD_CHECK(!options.dynamic || (t == DType::u8 && !options.outputs), Value,
           "where each call rounds its inputs, codes are uint8 and outputs stay as they are");
  TD_CHECK(options.percent > 50 && options.percent <= 100, Value,
           "a percentile of {} was asked for, expected more than 50 and at most 100, as 99.99",
           options.percent);
  constexpr int64_t kLeastBits = 2, kMostBits = 8;
  TD_CHECK(options.weight_bits >= kLeastBits && options.weight_bits <= kMostBits, Value,
           "weights of {} bits were asked for, expected {} to {}", options.weight_bits, kLeastBits,
           kMostBits);
  TD_CHECK(options.adaround >= 0, Value,
           "{} steps of AdaRound were asked for, expected 0 (none) or more", options.adaround);
  if (options.adaround > 0) check_untrained(net, "AdaRound");
  for (Layer& l : net.layers())
    if (!l.scale.defined()) l.most_code = (int64_t{1} << (options.weight_bits - 1)) - 1;
  changes_.resize(net.layers().size());
  const std::vector<char> all(net.layers().size(), 1);
  const Plan plan = plan_for(all), used = plan_for(wanted());
  const std::map<int, Step> learned = learned_steps(net, used);
  const bool all_learned = std::all_of(used.sites().begin(), used.sites().end(),
                                       [&](const Site& s) { return learned.count(s.source) > 0; });
  int64_t seen = 0;
  batches([&](std::span<const Tensor> x) {
    ++seen;
    Watching(net_, plan, [&](const Site& s, const Tensor& v) {
      seen_[s.value].see_extremes(v, "the value '" + s.name + "'");
    }).run(x);
  });
  TD_CHECK(seen > 0 || all_learned, Value,
           "there is no data to calibrate with\nGive some samples.");
  if (wants_histogram(options.method) || options.histograms)
    batches([&](std::span<const Tensor> x) {
      Watching(net_, plan, [&](const Site& s, const Tensor& v) { seen_[s.value].count(v); }).run(x);
    });
  if (options.correct_bias) correct_biases(batches);
  if (options.adaround > 0) adapt_rounding(batches);
}

std::vector<Step> Calibrated::steps_of(const Plan& plan) const {
  const DType t = options_.activations;
  constexpr int kBytes = 256, kWords = 65535;
  const int levels = t == DType::i16 ? kWords : kBytes;
  const std::map<int, Step> learned = learned_steps(net_, plan);
  std::vector<Step> steps;
  for (const Site& s : plan.sites()) {
    const auto own = learned.find(s.source);
    const auto at = seen_.find(plan.sites()[static_cast<size_t>(s.source)].value);
    if (own != learned.end())
      steps.push_back({own->second.scale, own->second.zero - (t == DType::i8 ? kBytes / 2 : 0)});
    else
      steps.push_back(step_of(
          at == seen_.end() ? Range() : at->second.range(options_.method, options_.percent, levels),
          t));
  }
  return steps;
}

Quantized Calibrated::with(Plan plan, bool tables) const {
  std::vector<Step> steps = steps_of(plan);
  return Quantized(net_, std::move(plan), std::move(steps), options_, changes_, tables);
}

Quantized Calibrated::quantised(const std::vector<size_t>& kept) const {
  std::vector<char> on = wanted();
  for (const size_t i : kept) on.at(i) = 0;
  return with(plan_for(on));
}

void Calibrated::correct_biases(const Batches& batches) {
  const Quantized q = quantised();
  MeanErrors errors(q);
  batches([&](std::span<const Tensor> x) {
    errors.batch = x[0].dim() > 0 ? x[0].size(0) : 1;
    errors.run(x);
    errors.samples += errors.batch;
  });
  for (size_t i = 0; i < net_.layers().size(); ++i) changes_[i].bias = errors.mean(i);
}

// From the first layer to the last, so that each makes up for what those before it lose.
void Calibrated::adapt_rounding(const Batches& batches) {
  const std::vector<char> on = wanted();
  for (size_t i = 0; i < on.size(); ++i) {
    const Layer& l = net_.layers()[i];
    if (!on[i] || !can_adapt(l)) continue;
    LayerSums sums;
    const Quantized before = quantised();
    Reading<Walk> in_float(net_, i);
    Reading<QuantizedWalk> in_codes(before, i);
    batches([&](std::span<const Tensor> x) { sums.add(l, in_float(x), in_codes(x)); });
    if (sums.rows == 0) continue;
    const bool bias = options_.correct_bias && l.bias.defined();
    changes_[i].up = adaptive_rounding(l, before.codes(i).scale, sums, bias, options_.adaround);
    if (!bias) continue;
    const Quantized after = quantised();
    changes_[i].bias = mean_error(l, weight_of(after.codes(i), l), sums);
  }
}

std::vector<double> Calibrated::sensitivity(const Batches& batches) const {
  const std::vector<char> wish = wanted();
  std::vector<Power> powers(net_.layers().size());
  std::vector<Quantized> each;
  each.reserve(powers.size());
  for (size_t i = 0; i < powers.size(); ++i) {
    std::vector<char> on(powers.size(), 0);
    on[i] = wish[i];
    each.push_back(with(Plan(net_, on, false, options_.dynamic), false));
  }
  constexpr int64_t kEnough = int64_t{1} << 18, kLeastSamples = 8;
  int64_t compared = 0, samples = 0;
  batches([&](std::span<const Tensor> x) {
    if (compared >= kEnough && samples >= kLeastSamples) return;
    Recording known(net_);
    const std::vector<Tensor> want = known.run(x);
    compared += want.at(0).numel();
    samples += want.at(0).dim() > 0 ? want.at(0).size(0) : 1;
    for (size_t i = 0; i < each.size(); ++i)
      if (wish[i]) powers[i].add(want.at(0), FewInCodes(each[i], known).run(x).at(0));
  });
  std::vector<double> out;
  for (const Power& p : powers) out.push_back(p.decibels());
  return out;
}

std::vector<LayerFigures> Calibrated::figures(const Quantized& q,
                                              const std::vector<double>& output_sqnr) const {
  const NoGradGuard no_grad;
  std::vector<LayerFigures> out;
  for (size_t i = 0; i < net_.layers().size(); ++i) {
    const Layer& l = net_.layers()[i];
    LayerFigures f;
    f.name = l.name;
    f.row = l.node->op->name;
    f.bytes = 4 * (l.weight.numel() + (l.bias.defined() ? l.bias.numel() : 0));
    f.float_bytes = f.bytes;
    f.output_sqnr = i < output_sqnr.size() ? output_sqnr[i] : 0;
    f.quantised = q.plan().is_quantised(i);
    if (f.quantised) {
      const LayerCodes& c = q.codes(i);
      if (const int site = q.plan().site_at(*l.node, 0); site >= 0) {
        f.step = q.steps()[static_cast<size_t>(site)];
        f.range = range_of(f.step, options_.activations);
      }
      f.bytes = code_bytes(l, options_) + 4 * c.scale.numel() +
                (c.bias.defined() ? 4 * (c.bias.numel() + c.bias_scale.numel()) : 0) +
                (c.added.defined() ? 4 * c.added.numel() : 0);
      const Tensor w = weight_of(c, l);
      f.weight_sqnr = sqnr({&l.weight, 1}, {&w, 1});
    }
    out.push_back(f);
  }
  return out;
}

std::vector<TableFigures> Calibrated::tables(const Quantized& q) const {
  const NoGradGuard no_grad;
  std::vector<TableFigures> out;
  for (size_t i = 0; i < net_.tables().size(); ++i) {
    const Table& t = net_.tables()[i];
    const TableCodes& c = q.table(i);
    TableFigures f{t.name, c.rows.defined(), 4 * t.weight.numel(), 4 * t.weight.numel()};
    if (f.quantised) {
      f.bytes = c.rows.numel() + 4 * c.scale.numel();
      const Tensor numbers = dequantize_linear(c.rows, c.scale, {}, 1);
      f.weight_sqnr = sqnr({&t.weight, 1}, {&numbers, 1});
    }
    out.push_back(f);
  }
  return out;
}

std::vector<RangeFigures> Calibrated::ranges(const Quantized& q, size_t bins) const {
  std::vector<RangeFigures> out;
  const std::vector<Site>& sites = q.plan().sites();
  for (size_t i = sites.size(); i-- > 0;) {
    const auto at = seen_.find(sites[i].value);
    if (sites[i].source != static_cast<int>(i) || at == seen_.end()) continue;
    std::string readers;
    for (size_t k = 0; k < net_.layers().size(); ++k)
      if (const int site = q.plan().site_at(*net_.layers()[k].node, 0);
          site >= 0 && sites[static_cast<size_t>(site)].source == static_cast<int>(i))
        readers += (readers.empty() ? ", read by " : ", ") + net_.layers()[k].name;
    out.push_back({sites[i].name + readers, at->second.extremes(),
                   range_of(q.steps()[i], options_.activations), at->second.histogram(bins)});
  }
  return out;
}

}  // namespace tandem::quant
