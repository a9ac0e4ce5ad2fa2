// SPDX-License-Identifier: Apache-2.0
// What every model of a recipe takes besides its own sizes: `init_from` (weights to begin with),
// `freeze`, `lora` and `test_average`.
#include "tandem/models/vision/test_average.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/recipe/components/components_internal.h"
#include "tandem/recipe/fields.h"
#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/open_run.h"
#include "tandem/weights/weights.h"

namespace tandem::recipe {
namespace {

/// Of `model:`, whatever its type.
struct FineTuning {
  struct LoRA {
    nn::ApplyLoRAOptions options = {};
    template <class V>
    void fields(V& v) {
      v("rank", options.r, {.doc = "of the updates", .at_least = 1});
      v("alpha", options.alpha, {.doc = "updates are scaled by alpha / rank"});
      v("dropout", options.dropout,
        {.doc = "share of values that training drops before an update", .at_least = 0, .below = 1});
      v("on", options.on, {.doc = "patterns of the Linear layers that get updates; none: all"});
      v("train", options.train, {.doc = "patterns of other parameters that are trained"});
    }
  };
  std::string init_from = {};
  bool strict = false;
  std::vector<std::string> freeze = {};
  std::optional<LoRA> lora = {};
  std::string test_average = "none";

  template <class V>
  void fields(V& v) {
    v("init_from", init_from,
      {.doc = "weights to begin with: a file, a Hugging Face folder or a run folder"});
    v("strict", strict, {.doc = "weights that are missing or of another shape are an error"});
    v("freeze", freeze, {.doc = "patterns of parameters and modules that stay as they are"});
    v("lora", lora, {.doc = "an update of low rank on Linear layers; all else is frozen"});
    v("test_average", test_average,
      {.doc = "outputs in evaluation are the mean over 2, 4 or 8 mirrored and turned views: flip, "
              "flips, turns"});
  }
};

// A mistake in patterns, with the line of the key that holds them.
template <class F>
auto at_key(const Options& o, const char* key, F f) {
  try {
    return f();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Value) throw;
    o.fail(key, e.text());
  }
}

void load_weights(const Options& o, nn::Module& net, const std::string& from, bool strict) {
  const StateDict values = is_run(from) ? run_state(from) : weights::load_weights(from);
  const weights::WeightsReport report = weights::load_into(net, values, {.strict = false});
  if (strict && !report.ok())
    o.fail("init_from", fmt::format("the weights in '{}' do not fit the model: {}Without `strict: "
                                    "true` those that fit are loaded.",
                                    from, report.to_string()));
  if (report.loaded == 0)
    o.fail("init_from",
           fmt::format("nothing in '{}' fits the model\n{}", from, report.to_string()));
  std::string text = report.to_string();
  if (!report.ok()) text += "what is missing or of another shape stays as it was drawn\n";
  fmt::print(stderr, "init_from '{}': {}", from, text);
}

/// Outputs in eval() are the mean over mirrored or turned images, the first field of a batch.
void average_in_eval(RecipeModel& m, models::TestAverage views) {
  m.forward = [one = std::move(m.forward), net = m.module.get(), views](const train::Batch& b) {
    if (net->is_training()) return one(b);
    train::Batch shown = b;
    Tensor target;
    const Tensor output = models::average_of_views(
        [&](const Tensor& x) {
          shown[0] = x;
          auto [y, t] = one(shown);
          target = std::move(t);
          return y;
        },
        b[0], views);
    return std::pair<Tensor, Tensor>(output, target);
  };
  m.predict = [one = std::move(m.predict), views](const train::Batch& b) {
    train::Batch shown = b;
    return models::average_of_views(
        [&](const Tensor& x) {
          shown[0] = x;
          return one(shown);
        },
        b[0], views);
  };
}

}  // namespace

const FieldsType& model_fields() { return kFieldsType<FineTuning>; }

void add_fine_tuning(Registry& registry, bool load) {
  for (auto& [name, make] : registry.model)
    make = [own = std::move(make), load](Options& o, const DataInfo& info) {
      FineTuning f;
      read_fields(o, f);
      const auto views =
          at_key(o, "test_average", [&] { return models::test_average_of(f.test_average); });
      RecipeModel m = own(o, info);
      if (views != models::TestAverage::none) {
        if (!m.forward || !m.predict)
          o.fail("test_average", "this model has no output for an image alone");
        average_in_eval(m, views);
      }
      nn::Module& net = *m.module;
      if (load && !f.init_from.empty()) load_weights(o, net, f.init_from, f.strict);
      if (f.lora) {
        const auto layers = at_key(o, "lora", [&] { return nn::apply_lora(net, f.lora->options); });
        if (load)
          fmt::print(stderr, "lora: rank {} on {} Linear layer(s)\n", f.lora->options.r,
                     layers.size());
      }
      if (!f.freeze.empty()) {
        const size_t n = at_key(o, "freeze", [&] { return nn::freeze(net, f.freeze); });
        if (load)
          fmt::print(stderr, "freeze: {} of {} parameters stay as they are\n", n,
                     net.named_parameters().size());
      }
      return m;
    };
}

}  // namespace tandem::recipe
