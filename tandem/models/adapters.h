// SPDX-License-Identifier: Apache-2.0
// LoRA adapters (Hu et al. 2022) in the folders that the library `peft` writes: merged into a
// model's weights, or applied at run time, where every row of a batch may have another one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/models/pretrained.h"

namespace tandem::models {

/// The update of one layer: y += b a x.
struct AdapterLayer {
  std::string path;         ///< of the layer in the model's module()
  bool transposed = false;  ///< the layer keeps its weight as [in, out]
  Tensor a, b;              ///< f32 [r, in] and [out, r]; the scale is in `b`
};
struct Adapter {
  std::vector<AdapterLayer> layers;
};

/// Read adapter_config.json and adapter_model.safetensors. Throws Io; Format for files that do not
/// fit the model, Unsupported for what is not a plain LoRA: DoRA, other saved modules, biases.
TD_API Adapter load_adapter(const FilePath& folder, PretrainedModel& model);

/// Add the updates to the weights, in the dtype that they have. Throws Value for a layer that the
/// model does not have.
TD_API void merge_adapter(PretrainedModel& model, const Adapter& adapter);

/// Adapters of one model that are applied while it runs. The model's weights stay as they are.
class TD_API AdapterSet {
 public:
  AdapterSet(PretrainedModel& model, const std::vector<Adapter>& adapters);
  ~AdapterSet();
  AdapterSet(const AdapterSet&) = delete;
  AdapterSet& operator=(const AdapterSet&) = delete;
  int64_t count() const { return count_; }

  /// While alive, the model's calls on this thread apply adapters, counted from 1: one to all rows,
  /// or to each row of `rows` i64 [n] its own; 0: none.
  class TD_API Use {
   public:
    Use(const AdapterSet& set, int64_t adapter);
    Use(const AdapterSet& set, Tensor rows);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    friend class AdapterSet;
    const AdapterSet& set_;
    int64_t adapter_ = 0;  ///< where there are no rows
    Tensor rows_ = {};
    const Use* before_;
  };

 private:
  struct Layer {
    nn::Module* module = nullptr;
    int hook = 0;
    /// [1 + adapters, r, in] and [1 + adapters, r, out]; the first is zero. Both lie as the
    /// products of a single row read them: `a` by dot products, `b` by sums of its rows.
    Buffer a, b;
  };
  Tensor add_update(const Layer& layer, const Tensor& in, const Tensor& out) const;
  int64_t count_;
  std::vector<Layer> layers_;
};

}  // namespace tandem::models
