// SPDX-License-Identifier: Apache-2.0
// Pruning: weights that are 0 and stay 0 while the rest is trained. torch.nn.utils.prune's names;
// the layer's parameter keeps its own, and its mask stands beside it as "weight_mask". A call on a
// pruned parameter takes its share from what is left.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/fields.h"
#include "tandem/nn/module.h"

namespace tandem::nn::prune {

/// Set the share `amount` of the parameter `name` of a layer to 0: the entries of the least
/// magnitude. The gradient of masked entries is 0. Throws Value for a layer without it and for an
/// amount outside of 0..1.
TD_API void l1_unstructured(Module& layer, const std::string& name, double amount);
/// The same for entries drawn by the generator.
TD_API void random_unstructured(Module& layer, const std::string& name, double amount);
/// Whole slices along `dim`, those with the least norm of order `n`.
TD_API void ln_structured(Module& layer, const std::string& name, double amount, double n,
                          int64_t dim);
/// The entries of the least magnitude of all these parameters together.
TD_API void global_unstructured(const std::vector<std::pair<Module*, std::string>>& parameters,
                                double amount);
/// All but the `n` largest of each `m` entries in a row along dimension 1, the inputs: 2 of 4 is
/// what sparse tensor cores multiply. Throws Shape where `m` does not divide them.
TD_API void semi_structured(Module& layer, const std::string& name, int64_t n = 2, int64_t m = 4);
/// Mask by hand: 0 or false where entries are pruned.
TD_API void custom_from_mask(Module& layer, const std::string& name, const Tensor& mask);
/// Make the zeros permanent and take the mask away. Throws Value where there is none.
TD_API void remove(Module& layer, const std::string& name);
TD_API bool is_pruned(Module& net);
/// Share of zeros in the masks of a net; 0 without masks.
TD_API double sparsity(Module& net);
/// A state_dict with masks as one of plain weights.
TD_API StateDict plain_state(StateDict state);

// ---- a schedule for a net

enum class Method : uint8_t {
  l1_unstructured,
  random_unstructured,
  ln_structured,
  global_unstructured,
  semi_structured,
};
constexpr const char* field_names(Method) {
  return "l1_unstructured random_unstructured ln_structured global_unstructured semi_structured";
}

/// Weights of Linear layers and convolutions. Sparsity grows as in Zhu and Gupta, To Prune, or Not
/// to Prune, https://arxiv.org/abs/1710.01878: final * (1 - (1 - t)^3), t from 0 to 1.
struct ScheduleOptions {
  Method method = Method::l1_unstructured;
  double final_sparsity = 0.5;
  int64_t from = 0, to = 0, every = 10;
  double n = 2;
  int64_t dim = 0;
  std::vector<std::string> on = {"*"};

  template <class V>
  void fields(V& v) {
    v("method", method,
      {.doc = "which weights: of least magnitude in a layer, or in all layers (global), drawn, "
              "slices of least norm, or all but 2 of 4 in a row"});
    v("final_sparsity", final_sparsity,
      {.doc = "share of zeros at the end; semi_structured has half", .at_least = 0, .below = 1});
    v("from", from, {.doc = "updates before the first weights are pruned", .at_least = 0});
    v("to", to, {.doc = "updates after which sparsity is final", .at_least = 0});
    v("every", every, {.doc = "updates between prunings", .at_least = 1});
    v("n", n, {.doc = "order of the norm (ln_structured)", .above = 0});
    v("dim", dim, {.doc = "dimension of the slices (ln_structured)"});
    v("on", on, {.doc = "patterns of the layers that are pruned"});
  }
};
/// Masks without zeros on all layers that the options choose: what a run holds from its beginning.
/// Throws Value where there are none.
TD_API void prepare(Module& net, const ScheduleOptions& options);
/// Before the update with that number, from 0: prunes if it is time to.
TD_API void set_step(Module& net, const ScheduleOptions& options, int64_t step);

}  // namespace tandem::nn::prune
