// SPDX-License-Identifier: Apache-2.0
// `quant:` of a recipe: its net is trained with rounded weights and activations.
#include "tandem/recipe/component_rows.h"
#include "tandem/recipe/fields.h"
#include "tandem/recipe/parts/parts_internal.h"

namespace tandem::recipe {
namespace {

template <class T>
void read_if_given(Options& root, const char* key, std::optional<T>& to) {
  Options o = root.part(key);
  if (root.has(key)) to = read_part<T>(o);
}

struct QatSteps : train::Callback {
  void fit_begin(train::Trainer& t) override { quant::set_qat_step(t.model(), t.step()); }
  void step_end(train::Trainer& t, const train::Logs&) override {
    quant::set_qat_step(t.model(), t.step());
  }
  const char* name() const override { return "QatSteps"; }
};

}  // namespace

CompressPart read_compress(Options& root) {
  CompressPart part;
  read_if_given(root, "quant", part.quant);
  return part;
}

void prepare_compressed(const CompressPart& part, nn::Module& net, bool /*training*/) {
  if (part.quant) quant::prepare_qat(net, *part.quant);
}

std::vector<std::shared_ptr<train::Callback>> compress_callbacks(const CompressPart& part) {
  std::vector<std::shared_ptr<train::Callback>> out;
  if (part.quant) out.push_back(std::make_shared<QatSteps>());
  return out;
}

const FieldsType& quant_fields() { return kFieldsType<quant::QatOptions>; }

}  // namespace tandem::recipe
