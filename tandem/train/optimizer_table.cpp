// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/optimizer_table_internal.h"

#include "tandem/optim/optim.h"

namespace tandem::train {
namespace {

using V = SettingVisitor;

template <class T>
void see(V& v, const char* name, T& value) {
  if constexpr (requires { std::span<double>(value); })
    v.see(name, std::span<double>(value));
  else
    v.see(name, value);
}

// Every setting that an optimizer may have, by PyTorch's name, which is the member's.
template <class Options>
void settings(Options& o, V& v) {
#define TD_SETTING(name) \
  if constexpr (requires { o.name; }) see(v, #name, o.name)
  TD_SETTING(lr);
  TD_SETTING(momentum);
  TD_SETTING(dampening);
  TD_SETTING(beta2_decay);
  TD_SETTING(betas);
  TD_SETTING(etas);
  TD_SETTING(step_sizes);
  TD_SETTING(alpha);
  TD_SETTING(rho);
  TD_SETTING(lambd);
  TD_SETTING(lr_decay);
  TD_SETTING(t0);
  TD_SETTING(d);
  TD_SETTING(eps);
  TD_SETTING(eps1);
  TD_SETTING(eps2);
  TD_SETTING(weight_decay);
  TD_SETTING(initial_accumulator_value);
  TD_SETTING(momentum_decay);
  TD_SETTING(decoupled_weight_decay);
  TD_SETTING(trust_coefficient);
  TD_SETTING(amsgrad);
  TD_SETTING(centered);
  TD_SETTING(nesterov);
  TD_SETTING(ns_coefficients);
  TD_SETTING(ns_steps);
  TD_SETTING(adjust_lr_fn);
  TD_SETTING(maximize);
#undef TD_SETTING
}

template <class O, class Options>
OptimizerRow row(std::map<std::string, double> keras = {}) {
  return {[](V& v) -> MakeOptimizer {
            Options o;
            settings(o, v);
            return [o](optim::ParamList p) { return std::make_unique<O>(std::move(p), o); };
          },
          std::move(keras)};
}

}  // namespace

const std::map<std::string, OptimizerRow>& optimizer_table() {
  using namespace optim;
  static const std::map<std::string, OptimizerRow> all = {
      {"sgd", row<SGD, SGDOptions>({{"lr", 1e-2}})},
      {"rmsprop", row<RMSprop, RMSpropOptions>({{"lr", 1e-3}, {"alpha", 0.9}, {"eps", 1e-7}})},
      {"adam", row<Adam, AdamOptions>({{"eps", 1e-7}})},
      {"adamw", row<AdamW, AdamWOptions>({{"eps", 1e-7}, {"weight_decay", 4e-3}})},
      {"adadelta", row<Adadelta, AdadeltaOptions>({{"lr", 1e-3}, {"rho", 0.95}, {"eps", 1e-7}})},
      {"adagrad", row<Adagrad, AdagradOptions>(
                      {{"lr", 1e-3}, {"initial_accumulator_value", 0.1}, {"eps", 1e-7}})},
      {"adamax", row<Adamax, AdamaxOptions>({{"lr", 1e-3}, {"eps", 1e-7}})},
      {"nadam", row<NAdam, NAdamOptions>({{"lr", 1e-3}, {"eps", 1e-7}})},
      {"lion", row<Lion, LionOptions>({{"lr", 1e-3}})},
      {"lamb", row<LAMB, LAMBOptions>({{"eps", 1e-7}})},
      {"adafactor", row<Adafactor, AdafactorOptions>({{"lr", 1e-3}})},
      {"radam", row<RAdam, RAdamOptions>()},
      {"rprop", row<Rprop, RpropOptions>()},
      {"asgd", row<ASGD, ASGDOptions>()},
      {"sparse_adam", row<SparseAdam, SparseAdamOptions>()},
      {"lars", row<LARS, LARSOptions>()},
      {"muon", row<Muon, MuonOptions>()},
  };
  return all;
}

MakeOptimizer keras_optimizer(const OptimizerRow& row) {
  struct Keras : V {
    const std::map<std::string, double>& with;
    explicit Keras(const std::map<std::string, double>& with) : with(with) {}
    void see(const char* name, double& v) override {
      if (const auto it = with.find(name); it != with.end()) v = it->second;
    }
    void see(const char*, bool&) override {}
    void see(const char*, int64_t&) override {}
    void see(const char*, std::string&) override {}
    void see(const char*, std::span<double>) override {}
    void see(const char*, std::optional<double>&) override {}
  } v(row.keras);
  return row.read(v);
}

}  // namespace tandem::train
