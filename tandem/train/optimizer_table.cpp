// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/optimizer_table_internal.h"

#include "tandem/optim/optim.h"

namespace tandem::train {
namespace {

using V = SettingVisitor;

// The settings of each, in PyTorch's order.
void settings(optim::SGDOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("momentum", o.momentum);
  v.see("dampening", o.dampening);
  v.see("weight_decay", o.weight_decay);
  v.see("nesterov", o.nesterov);
  v.see("maximize", o.maximize);
}
template <class O>
void adam_settings(O& o, V& v) {
  v.see("lr", o.lr);
  v.see("betas", std::span<double>(o.betas));
  v.see("eps", o.eps);
  v.see("weight_decay", o.weight_decay);
  v.see("amsgrad", o.amsgrad);
  v.see("maximize", o.maximize);
}
void settings(optim::AdamOptions& o, V& v) { adam_settings(o, v); }
void settings(optim::AdamWOptions& o, V& v) { adam_settings(o, v); }
void settings(optim::RMSpropOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("alpha", o.alpha);
  v.see("eps", o.eps);
  v.see("weight_decay", o.weight_decay);
  v.see("momentum", o.momentum);
  v.see("centered", o.centered);
  v.see("maximize", o.maximize);
}
void settings(optim::AdagradOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("lr_decay", o.lr_decay);
  v.see("weight_decay", o.weight_decay);
  v.see("initial_accumulator_value", o.initial_accumulator_value);
  v.see("eps", o.eps);
  v.see("maximize", o.maximize);
}
void settings(optim::AdadeltaOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("rho", o.rho);
  v.see("eps", o.eps);
  v.see("weight_decay", o.weight_decay);
  v.see("maximize", o.maximize);
}
void settings(optim::AdamaxOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("betas", std::span<double>(o.betas));
  v.see("eps", o.eps);
  v.see("weight_decay", o.weight_decay);
  v.see("maximize", o.maximize);
}
void settings(optim::NAdamOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("betas", std::span<double>(o.betas));
  v.see("eps", o.eps);
  v.see("weight_decay", o.weight_decay);
  v.see("momentum_decay", o.momentum_decay);
  v.see("decoupled_weight_decay", o.decoupled_weight_decay);
  v.see("maximize", o.maximize);
}
void settings(optim::RAdamOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("betas", std::span<double>(o.betas));
  v.see("eps", o.eps);
  v.see("weight_decay", o.weight_decay);
  v.see("decoupled_weight_decay", o.decoupled_weight_decay);
  v.see("maximize", o.maximize);
}
void settings(optim::RpropOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("etas", std::span<double>(o.etas));
  v.see("step_sizes", std::span<double>(o.step_sizes));
  v.see("maximize", o.maximize);
}
void settings(optim::ASGDOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("lambd", o.lambd);
  v.see("alpha", o.alpha);
  v.see("t0", o.t0);
  v.see("weight_decay", o.weight_decay);
  v.see("maximize", o.maximize);
}
void settings(optim::SparseAdamOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("betas", std::span<double>(o.betas));
  v.see("eps", o.eps);
  v.see("maximize", o.maximize);
}
void settings(optim::AdafactorOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("beta2_decay", o.beta2_decay);
  v.see("eps1", o.eps1);
  v.see("eps2", o.eps2);
  v.see("d", o.d);
  v.see("weight_decay", o.weight_decay);
  v.see("maximize", o.maximize);
}
void settings(optim::LionOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("betas", std::span<double>(o.betas));
  v.see("weight_decay", o.weight_decay);
  v.see("maximize", o.maximize);
}
void settings(optim::LAMBOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("betas", std::span<double>(o.betas));
  v.see("eps", o.eps);
  v.see("weight_decay", o.weight_decay);
  v.see("maximize", o.maximize);
}
void settings(optim::LARSOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("momentum", o.momentum);
  v.see("dampening", o.dampening);
  v.see("weight_decay", o.weight_decay);
  v.see("trust_coefficient", o.trust_coefficient);
  v.see("eps", o.eps);
  v.see("nesterov", o.nesterov);
  v.see("maximize", o.maximize);
}
void settings(optim::MuonOptions& o, V& v) {
  v.see("lr", o.lr);
  v.see("weight_decay", o.weight_decay);
  v.see("momentum", o.momentum);
  v.see("nesterov", o.nesterov);
  v.see("ns_coefficients", std::span<double>(o.ns_coefficients));
  v.see("eps", o.eps);
  v.see("ns_steps", o.ns_steps);
  v.see("adjust_lr_fn", o.adjust_lr_fn);
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
