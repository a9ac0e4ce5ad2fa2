// SPDX-License-Identifier: Apache-2.0
// What every model of a recipe takes besides its own sizes: `init_from` (weights to begin with),
// `freeze`, `lora` and `test_average`.
#include "cli/model_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/interop/weights.h"
#include "tandem/models/test_average.h"
#include "tandem/nn/fine_tune.h"

namespace tandem::cli {
namespace {

using train::Options;
using train::RecipeModel;

/// What the recipe says, read before the model is made.
struct FineTuning {
  std::string init_from;
  bool strict = false, has_lora = false;
  nn::ApplyLoRAOptions lora;
  std::vector<std::string> freeze;
};

FineTuning read(Options& o) {
  FineTuning f;
  f.init_from = o.text("init_from", "");
  f.strict = o.flag("strict", false);
  f.freeze = o.texts("freeze", {});
  Options lora = o.part("lora");
  f.has_lora = o.has("lora");
  if (!f.has_lora) return f;
  f.lora.r = lora.whole("rank", f.lora.r);
  f.lora.alpha = lora.number("alpha", f.lora.alpha);
  f.lora.dropout = lora.number("dropout", f.lora.dropout);
  f.lora.on = lora.texts("on", f.lora.on);
  f.lora.train = lora.texts("train", {});
  lora.finish();
  return f;
}

// A mistake in patterns, with the line of the key that holds them.
template <class F>
auto at_key(const Options& o, const char* key, F f) {
  try {
    return f();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Value) throw;
    o.fail(key, e.message());
  }
}

void load_weights(const Options& o, nn::Module& net, const std::string& from, bool strict) {
  const StateDict values = is_run(from) ? run_state(from) : interop::load_weights(from);
  const auto report =
      at_key(o, "init_from", [&] { return interop::load_into(net, values, {.strict = strict}); });
  if (report.loaded == 0)
    o.fail("init_from",
           fmt::format("nothing in '{}' fits the model\n{}", from, report.to_string()));
  std::string text = report.to_string();
  if (!report.ok()) text += "what is missing or of another shape stays as it was drawn\n";
  fmt::print(stderr, "init_from '{}': {}", from, text);
}

/// Outputs in eval() are the mean over mirrored or turned pictures, the first field of a batch.
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

void add_fine_tuning(train::Registry& registry, bool load) {
  for (auto& [name, make] : registry.model)
    make = [own = std::move(make), load](Options& o, const std::map<std::string, int64_t>& info) {
      const FineTuning f = read(o);
      const auto views = at_key(o, "test_average", [&] {
        return models::test_average_of(o.text("test_average", "none"));
      });
      RecipeModel m = own(o, info);
      if (views != models::TestAverage::none) {
        if (!m.forward || !m.predict)
          o.fail("test_average", "this model has no output for a picture alone");
        average_in_eval(m, views);
      }
      nn::Module& net = *m.module;
      if (load && !f.init_from.empty()) load_weights(o, net, f.init_from, f.strict);
      if (f.has_lora) {
        const auto layers = at_key(o, "lora", [&] { return nn::apply_lora(net, f.lora); });
        if (load)
          fmt::print(stderr, "lora: rank {} on {} Linear layer(s)\n", f.lora.r, layers.size());
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

}  // namespace tandem::cli
