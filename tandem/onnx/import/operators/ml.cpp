// SPDX-License-Identifier: Apache-2.0
// Ops of ai.onnx.ml: label encoding, feature selection, thresholds, tree ensembles.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/base/budget.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// A list attribute or a tensor attribute as a vector of values: strings, or numbers as f64.
struct List {
  std::vector<std::string> texts;
  std::vector<double> numbers;
  OnnxType type = OnnxType::undefined;
};

List list_of(const OnnxCall& c, const std::string& name) {
  List l;
  if (c.attribute(name + "_strings")) {
    l.texts = c.attr_texts(name + "_strings");
    l.type = OnnxType::string;
  } else if (c.attribute(name + "_int64s")) {
    for (const int64_t i : c.attr_ints(name + "_int64s"))
      l.numbers.push_back(static_cast<double>(i));
    l.type = OnnxType::i64;
  } else if (c.attribute(name + "_floats")) {
    for (const float f : c.attr_floats(name + "_floats")) l.numbers.push_back(f);
    l.type = OnnxType::f32;
  } else if (const OnnxAttribute* a = c.attribute(name + "_tensor")) {
    l.type = a->tensor.type();
    if (a->tensor.is_strings())
      l.texts = a->tensor.strings().values;
    else
      l.numbers = a->tensor.tensor().to_vector<double>();
  } else {
    TD_FAIL(Format, "expected {}_* as an attribute", name);
  }
  return l;
}

void label_encoder(OnnxCall& c) {
  const List keys = list_of(c, "keys"), values = list_of(c, "values");
  const bool texts_in = c.value(0).is_strings(), texts_out = values.type == OnnxType::string;
  TD_CHECK(texts_in == (keys.type == OnnxType::string), DType, "keys are {}, the input is {}",
           to_string(keys.type), c.value(0).describe());
  const size_t n = std::max(keys.texts.size(), keys.numbers.size());
  TD_CHECK(n == std::max(values.texts.size(), values.numbers.size()), Format,
           "{} keys for {} values", n, std::max(values.texts.size(), values.numbers.size()));
  std::map<std::string, size_t> by_text;
  std::map<double, size_t> by_number;
  std::optional<size_t> nan;
  for (size_t i = 0; i < n; ++i) {  // of equal keys the last one wins
    if (texts_in)
      by_text[keys.texts[i]] = i;
    else if (std::isnan(keys.numbers[i]))
      nan = i;
    else
      by_number[keys.numbers[i]] = i;
  }
  const std::vector<double> in =
      texts_in ? std::vector<double>() : c.value(0).tensor().to_vector<double>();
  const size_t count = texts_in ? c.value(0).strings().values.size() : in.size();
  auto find = [&](size_t i) -> std::optional<size_t> {
    if (texts_in) {
      const auto it = by_text.find(c.value(0).strings().values[i]);
      return it == by_text.end() ? std::nullopt : std::optional<size_t>(it->second);
    }
    if (std::isnan(in[i])) return nan;
    const auto it = by_number.find(in[i]);
    return it == by_number.end() ? std::nullopt : std::optional<size_t>(it->second);
  };
  const OnnxAttribute* other = c.attribute("default_tensor");
  if (texts_out) {
    OnnxStrings out{c.value(0).shape(), {}};
    std::string fallback = c.attr_text("default_string", "_Unused");
    if (other && other->tensor.is_strings() && !other->tensor.strings().values.empty())
      fallback = other->tensor.strings().values[0];
    for (size_t i = 0; i < count; ++i) {
      const auto at = find(i);
      out.values.push_back(at ? values.texts[*at] : fallback);
    }
    return c.set(0, OnnxValue(std::move(out)));
  }
  double fallback = info_of(values.type).floating
                        ? c.attr_float("default_float", -0.0)
                        : static_cast<double>(c.attr("default_int64", -1));
  if (other && other->tensor.is_tensor() && other->tensor.tensor().numel() > 0)
    fallback = other->tensor.tensor().to_vector<double>()[0];
  std::vector<double> out;
  for (size_t i = 0; i < count; ++i) {
    const auto at = find(i);
    out.push_back(at ? values.numbers[*at] : fallback);
  }
  c.set(0, cast_value(OnnxValue(tensor(out, Shape(c.value(0).shape()))), values.type));
}

void array_feature_extractor(OnnxCall& c) {
  const Tensor x = c.x(0), at = c.x(1).to(DType::i64).reshape({-1});
  const Tensor y = index_select(x, x.dim() - 1, at);
  c.set(0, x.dim() == 1 ? y.reshape({1, -1}) : y, c.type(0));
}

void binarizer(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set_like(0, (x > c.attr_float("threshold", 0)).to(x.dtype()));
}

/// TreeEnsemble of version 5: inner nodes and leaves are numbered separately.
struct Trees {
  std::vector<int64_t> features, modes, yes, no, yes_leaf, no_leaf, targets, roots, missing;
  std::vector<double> splits, weights;
  std::vector<std::vector<double>> members;  ///< of nodes with a set

  bool test(size_t node, double v) const {
    if (std::isnan(v) && !missing.empty() && missing[node]) return true;
    const double s = splits[node];
    switch (modes[node]) {
      case 0:
        return v <= s;
      case 1:
        return v < s;
      case 2:
        return v >= s;
      case 3:
        return v > s;
      case 4:
        return v == s;
      case 5:
        return v != s;
      default:
        return std::find(members[node].begin(), members[node].end(), v) != members[node].end();
    }
  }

  /// The leaf of a sample.
  size_t leaf(size_t root, const double* x, int64_t n) const {
    size_t node = root;
    for (size_t steps = 0; steps <= features.size(); ++steps) {
      Budget::work(1);
      TD_CHECK(node < features.size(), Format, "a tree leads to node {} of {}", node,
               features.size());
      const int64_t f = features[node];
      TD_CHECK(f >= 0 && f < n, Format, "a node reads feature {} of {}", f, n);
      const bool yes_ = test(node, x[f]);
      const auto next = static_cast<size_t>(yes_ ? yes[node] : no[node]);
      if (yes_ ? yes_leaf[node] : no_leaf[node]) {
        TD_CHECK(next < weights.size(), Format, "a tree leads to leaf {} of {}", next,
                 weights.size());
        return next;
      }
      node = next;
    }
    TD_FAIL(Format, "a tree contains a cycle");
  }
};

std::vector<double> tensor_attr(const OnnxCall& c, const char* name) {
  const OnnxAttribute* a = c.attribute(name);
  return a && a->tensor.is_tensor() ? a->tensor.tensor().to_vector<double>()
                                    : std::vector<double>();
}

Trees trees_of(const OnnxCall& c) {
  Trees t;
  t.features = c.attr_ints("nodes_featureids");
  t.yes = c.attr_ints("nodes_truenodeids");
  t.no = c.attr_ints("nodes_falsenodeids");
  t.yes_leaf = c.attr_ints("nodes_trueleafs");
  t.no_leaf = c.attr_ints("nodes_falseleafs");
  t.targets = c.attr_ints("leaf_targetids");
  t.roots = c.attr_ints("tree_roots");
  t.missing = c.attr_ints("nodes_missing_value_tracks_true");
  t.splits = tensor_attr(c, "nodes_splits");
  t.weights = tensor_attr(c, "leaf_weights");
  for (const double m : tensor_attr(c, "nodes_modes")) t.modes.push_back(static_cast<int64_t>(m));
  const size_t n = t.features.size();
  TD_CHECK(t.yes.size() == n && t.no.size() == n && t.yes_leaf.size() == n &&
               t.no_leaf.size() == n && t.splits.size() == n && t.modes.size() == n &&
               (t.missing.empty() || t.missing.size() == n) && t.targets.size() == t.weights.size(),
           Format, "its lists of nodes have different lengths");
  // The sets are concatenated in the order of the trees, each terminated by NaN.
  const std::vector<double> values = tensor_attr(c, "membership_values");
  t.members.resize(n);
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    if (t.modes[i] != 6) continue;
    for (; at < values.size() && !std::isnan(values[at]); ++at) t.members[i].push_back(values[at]);
    ++at;
  }
  return t;
}

void tree_ensemble(OnnxCall& c) {
  const Trees t = trees_of(c);
  const Tensor x = c.x(0);
  TD_CHECK(x.dim() == 2, Shape, "expected [n, features], got {}", x.shape().to_string());
  const int64_t n = x.size(0), features = x.size(1), targets = c.attr("n_targets", 1);
  TD_CHECK(targets > 0 && targets < (int64_t{1} << 24), Value, "expected targets, got {}", targets);
  TD_CHECK(c.attr("post_transform", 0) == 0, Unsupported, "only the plain sum is supported");
  const int64_t how = c.attr("aggregate_function", 1);  // average, sum, min, max
  const double first = how == 2   ? std::numeric_limits<double>::max()
                       : how == 3 ? std::numeric_limits<double>::lowest()
                                  : 0;
  const std::vector<double> v = x.to_vector<double>();
  check_onnx_size(Shape(n, targets), sizeof(double));
  std::vector<double> y(static_cast<size_t>(n * targets), first);
  check_onnx_loop(static_cast<double>(n) * static_cast<double>(t.roots.size()));
  for (int64_t i = 0; i < n; ++i)
    for (const int64_t root : t.roots) {
      const size_t leaf = t.leaf(static_cast<size_t>(root), v.data() + i * features, features);
      const int64_t k = t.targets[leaf];
      TD_CHECK(k >= 0 && k < targets, Format, "a leaf has target {} of {}", k, targets);
      double& out = y[static_cast<size_t>(i * targets + k)];
      const double w = t.weights[leaf];
      out = how == 2   ? std::min(out, w)
            : how == 3 ? std::max(out, w)
            : how == 0 ? out + w / static_cast<double>(t.roots.size())
                       : out + w;
    }
  c.set_like(0, tensor(y, Shape(n, targets)));
}

}  // namespace

std::span<const OnnxRow> onnx_ml_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxMl,
       "LabelEncoder",
       2,
       0,
       label_encoder,
       {1, 1,
        "default_float default_int64 default_string default_tensor keys_floats keys_int64s "
        "keys_strings keys_tensor values_floats values_int64s values_strings values_tensor"}},
      {kOnnxMl, "ArrayFeatureExtractor", 1, 0, array_feature_extractor, {2, 1, ""}},
      {kOnnxMl, "Binarizer", 1, 0, binarizer, {1, 1, "threshold"}},
      {kOnnxMl,
       "TreeEnsemble",
       5,
       0,
       tree_ensemble,
       {1, 1,
        "aggregate_function leaf_targetids leaf_weights membership_values n_targets "
        "nodes_falseleafs nodes_falsenodeids nodes_featureids ~nodes_hitrates "
        "nodes_missing_value_tracks_true nodes_modes nodes_splits nodes_trueleafs "
        "nodes_truenodeids post_transform tree_roots"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
