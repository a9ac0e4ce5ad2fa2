// SPDX-License-Identifier: Apache-2.0
// Optimizers with PyTorch's names, options and defaults. Parameters are in groups; a group's
// numbers (learning rate, betas, ...), step counts and moments are cells. An update is one op row
// over a parameter and its moments, in place where nobody holds the old values; in eager one
// parallel region runs those of all parameters.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "tandem/base/fields.h"
#include "tandem/graph/cells/update.h"
#include "tandem/optim/number.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::optim {

/// What an optimizer is called, beside its class. All texts are literals.
struct OptimizerAbout {
  const char* name;     ///< in recipes, and by Keras's way: "adamw"
  const char* doc;      ///< what it is and where it comes from
  const char* example;  ///< `optim:` of a recipe that trains with it
};

/// Parameters with options of their own. What is not given is the optimizer's; an option that the
/// optimizer does not have throws Value.
struct ParamGroup {
  std::vector<Param> params;
  std::optional<double> lr = {};
  std::optional<std::array<double, 2>> betas = {};
  std::optional<double> eps = {}, weight_decay = {}, momentum = {}, dampening = {}, alpha = {},
                        rho = {}, lr_decay = {}, momentum_decay = {}, lambd = {}, t0 = {},
                        trust_coefficient = {};
  std::optional<bool> nesterov = {}, amsgrad = {}, centered = {}, maximize = {};
  template <class V>
  void fields(V& v) {
    v("lr", lr);
    v("betas", betas, {.elements = "beta1 beta2"});
    v("eps", eps);
    v("weight_decay", weight_decay);
    v("momentum", momentum);
    v("dampening", dampening);
    v("alpha", alpha);
    v("rho", rho);
    v("lr_decay", lr_decay);
    v("momentum_decay", momentum_decay);
    v("lambd", lambd);
    v("t0", t0);
    v("trust_coefficient", trust_coefficient);
    v("nesterov", nesterov);
    v("amsgrad", amsgrad);
    v("centered", centered);
    v("maximize", maximize);
  }
};

/// What an optimizer takes: parameters, or groups of them.
class TD_API ParamList {
 public:
  ParamList() = default;
  ParamList(std::vector<Param> params);
  ParamList(std::initializer_list<Param> params);
  ParamList(std::vector<ParamGroup> groups) : groups(std::move(groups)) {}
  ParamList(std::initializer_list<ParamGroup> groups) : groups(groups) {}
  std::vector<ParamGroup> groups;
};

/// Base of all optimizers: groups, gradients, state in and out.
class TD_API Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Update every parameter that has a gradient.
  void step(SourceLocation loc = SourceLocation::here());
  /// `closure` computes the loss and its gradients; it is called first (LBFGS: several times).
  /// Gives its loss.
  virtual Tensor step(const std::function<Tensor()>& closure,
                      SourceLocation loc = SourceLocation::here());
  /// Empty the gradients of all parameters.
  void zero_grad();

  /// More parameters, with their own options. Throws Value for one that is there already.
  void add_param_group(ParamGroup group);
  size_t num_groups() const { return groups_.size(); }
  /// Parameters of a group; all of them, in order of the groups.
  std::vector<Param> params(size_t group) const;
  const std::vector<Param>& params() const { return params_; }

  /// The learning rate of a group; throws Unsupported in a trace (see lr_tensor()).
  double lr(size_t group = 0) const { return option("lr", group); }
  /// Set that of all groups, or of one.
  void set_lr(double lr);
  void set_lr(double lr, size_t group) { set_option("lr", lr, group); }
  Tensor lr_tensor(size_t group = 0) const;
  /// A number of a group by PyTorch's name; betas are "beta1" and "beta2". Throws Value for an
  /// option that this optimizer does not have.
  double option(const std::string& name, size_t group = 0) const;
  void set_option(const std::string& name, double value, size_t group = 0);
  bool has_option(const std::string& name) const;
  /// Names of what option() gives.
  std::vector<std::string> option_names() const;
  /// The rate that schedules start from: lr at the time of the first schedule.
  double initial_lr(size_t group) const;
  void set_initial_lr(double lr, size_t group);
  /// Number of updates so far (of the parameter that had most), as a value.
  Tensor step_count() const;
  const char* type() const { return type_; }
  /// Does an element's update depend on that element alone? Then a part of a parameter may be
  /// updated by itself.
  virtual bool elementwise() const { return true; }
  /// Update these instead: one for each of params(), in their order, of any shape. Moments start
  /// from nothing, options and counts stay. For those who shard parameters over ranks.
  void replace_params(const std::vector<Param>& params);

  /// Of each parameter "conv1.weight.exp_avg", ".step", ...; without names, and where two
  /// share one, their number comes first. Of each group "param_groups.0.lr", ..., flags as 0 and 1,
  /// and "param_groups.0.params".
  StateDict state_dict() const;
  /// Takes names as state_dict() gives them, or PyTorch's "state.0.exp_avg". Throws Value when a
  /// name is missing or unknown, Shape when a shape differs; changes nothing then.
  void load_state_dict(const StateDict& state);

 protected:
  /// An option of a group. Flags cannot change after the group was made.
  struct Option {
    std::string name;
    double value;
    bool flag = false;
    const char* field = "";  ///< what it is declared as: "betas" for "beta1"
    Field bounds = {};
  };
  /// Options of a group while it is made.
  class TD_API Options {
   public:
    explicit Options(const std::vector<Option>& all, const char* type) : all_(all), type_(type) {}
    double operator[](std::string_view name) const;

   private:
    const std::vector<Option>& all_;
    const char* type_;
  };

  /// One parameter's step.
  class TD_API Update {
   public:
    size_t index = 0;
    Tensor grad;  ///< negated where the group maximises
    SourceLocation loc;

    const Param& param() const;
    /// A number or flag of the group.
    Number number(const char* name) const;
    bool flag(const char* name) const;
    /// How many steps this parameter has made, with this one.
    Number step() const;
    /// 1 - beta^step.
    Number bias_correction(const char* beta) const;
    /// The value of a moment, and storing one.
    Tensor state(const char* name) const;
    bool has_state(const char* name) const;
    void set_state(const char* name, const Tensor& v) const;
    /// A number kept for this parameter (add_number).
    Number kept(const char* name) const;
    void keep(const char* name, const Number& v) const;
    /// One row over the parameter, its gradient, the moments named and the numbers.
    void run(const OpDef& row, std::initializer_list<const char*> states,
             std::initializer_list<Number> numbers) const {
      run(row, states, numbers, grad);
    }
    void run(const OpDef& row, std::initializer_list<const char*> states,
             std::initializer_list<Number> numbers, const Tensor& grad) const;
    /// The same without the parameter: the first state takes its place.
    void run_states(const OpDef& row, std::initializer_list<const char*> states,
                    std::initializer_list<Number> numbers) const;

   private:
    friend class Optimizer;
    explicit Update(Optimizer& o) : o_(o) {}
    void run_cells(const OpDef& row, SmallVec<Cell*, 5> cells, const Tensor& grad,
                   std::initializer_list<Number> numbers) const;
    Optimizer& o_;
    size_t group_ = 0;
  };

  /// `type` is the class's name. The numbers and flags that `options` declares are those of every
  /// group; groups are checked against their bounds.
  Optimizer(const char* type, AnyFields options);
  /// For the constructor of the derived class. Throws Value when there are no parameters.
  void add_all(ParamList params);
  const Param& params_of(size_t i) const { return params_[i]; }
  /// A moment of parameter i, of its shape or another, named as PyTorch's.
  void add_state(size_t i, const char* name, double fill = 0);
  void add_state(size_t i, const char* name, Tensor value);
  /// A number per parameter, kept over steps.
  void add_number(const char* name, double start);
  /// Add the state of parameter i of a new group, and check what no bound of a field says.
  virtual void init(const Options& options, size_t i) = 0;
  virtual void update(Update& u) = 0;
  /// State beyond moments and numbers, in and out.
  virtual void extra_state(StateDict&) const {}
  /// Called twice: to check and to name what it takes, then with `apply`.
  virtual void load_extra_state(const StateDict&, std::vector<std::string>& /*known*/,
                                bool /*apply*/) {}
  /// PyTorch's state of this optimizer has no step count: without one a moment is not fresh.
  void step_is_optional() { step_optional_ = true; }
  /// All updates of one step; LBFGS has its own.
  virtual void step_all(SourceLocation loc);

 private:
  struct Group {
    std::vector<size_t> members;
    std::vector<Option> options;  ///< flags hold here, numbers in the cell
    Buffer numbers;               ///< f64, one element per option
    std::optional<double> initial_lr = {};
  };
  struct Kept {
    const char* name;
    double start;
    Buffer values;  ///< f64, one element per parameter
  };
  struct Running;
  struct Reader;
  void begin_step(Running& run, const std::vector<char>& live) const;
  void store_kept(Running& run, SourceLocation loc);
  size_t option_index(const std::string& name) const;
  Buffer* state_of(size_t i, const std::string& name) const;
  Kept& kept_of(const std::string& name);
  void check_new(const ParamGroup& group) const;
  void check_sharding(const std::vector<Param>& params) const;
  std::vector<std::string> keys() const;

  const char* type_;
  std::vector<Option> defaults_;
  std::vector<Param> params_;
  std::vector<size_t> group_of_;
  std::vector<Group> groups_;
  mutable std::vector<std::vector<std::pair<std::string, Buffer>>> states_;
  std::vector<Kept> kept_;  ///< the first is "step"
  Running* running_ = nullptr;
  bool step_optional_ = false;
};

/// Scale gradients so that their total p-norm (p may be infinity) is at most `max_norm`; gives the
/// norm before. With `error_if_nonfinite` a norm that is not a number throws Value.
TD_API Tensor clip_grad_norm_(const std::vector<Param>& params, double max_norm,
                              double norm_type = 2.0, bool error_if_nonfinite = false,
                              SourceLocation loc = SourceLocation::here());
/// Scale gradients as clip_grad_norm_ does, by a norm that is known.
TD_API void clip_grads_with_norm_(const std::vector<Param>& params, double max_norm,
                                  const Tensor& norm, SourceLocation loc = SourceLocation::here());
/// The norm that clip_grad_norm_ gives, without a change.
TD_API Tensor get_total_norm(const std::vector<Param>& params, double norm_type = 2.0,
                             SourceLocation loc = SourceLocation::here());
/// What each gradient adds to that norm, [params.size()], zeros for parameters without one: where
/// gradients lie in several places, terms are added up, and norm_of_terms() gives the norm.
TD_API Tensor get_norm_terms(const std::vector<Param>& params, double norm_type = 2.0,
                             SourceLocation loc = SourceLocation::here());
/// The norm that all terms make, with the bits of get_total_norm() for parameters of one dtype.
TD_API Tensor norm_of_terms(const Tensor& terms, double norm_type = 2.0,
                            SourceLocation loc = SourceLocation::here());
/// Clamp gradients to [-value, value].
TD_API void clip_grad_value_(const std::vector<Param>& params, double value,
                             SourceLocation loc = SourceLocation::here());

}  // namespace tandem::optim
