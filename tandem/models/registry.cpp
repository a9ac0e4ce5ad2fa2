// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/registry.h"

#include <array>

#include "tandem/base/nearest.h"
#include "tandem/models/vision/convnext.h"
#include "tandem/models/vision/densenet.h"
#include "tandem/models/vision/efficientnet.h"
#include "tandem/models/vision/lenet.h"
#include "tandem/models/vision/mobilenet.h"
#include "tandem/models/vision/resnet.h"
#include "tandem/models/vision/shufflenet.h"
#include "tandem/models/vision/squeezenet.h"
#include "tandem/models/vision/unet.h"
#include "tandem/models/vision/vgg.h"
#include "tandem/models/vision/vit.h"

namespace tandem::models {
namespace {

/// Copy an option into the family's field if it is set; a family without the field rejects it.
template <class Options>
void set_all(const std::string& name, const ModelOptions& from, Options& to) {
  auto refuse = [&](const char* field) {
    TD_FAIL(Value, "the model {} has no option {}", name, field);
  };
  if (from.num_classes) {
    if constexpr (requires { to.num_classes; })
      to.num_classes = *from.num_classes;
    else if constexpr (requires { to.n_classes; })
      to.n_classes = *from.num_classes;
    else
      refuse("num_classes");
  }
  if (from.in_channels) {
    if constexpr (requires { to.in_channels; })
      to.in_channels = *from.in_channels;
    else if constexpr (requires { to.n_channels; })
      to.n_channels = *from.in_channels;
    else
      refuse("in_channels");
  }
  if (from.image_size) {
    if constexpr (requires { to.image_size; })
      to.image_size = *from.image_size;
    else
      refuse("image_size");
  }
  if (from.dropout) {
    if constexpr (requires { to.dropout; })
      to.dropout = *from.dropout;
    else
      refuse("dropout");
  }
}

template <class F>
struct OptionsOf;
template <class M, class O>
struct OptionsOf<M (*)(O)> {
  using Type = O;
};
template <auto function>
nn::AnyModule make_by(const std::string& name, const ModelOptions& options) {
  typename OptionsOf<decltype(function)>::Type o;
  set_all(name, options, o);
  return function(o);
}

constexpr std::array<int64_t, 3> kImageNet = {3, 224, 224};

struct Row {
  const char* name;
  nn::AnyModule (*make)(const std::string& name, const ModelOptions& options);
  std::array<int64_t, 3> input = kImageNet;
  bool any_size = true;
};

#define ROW(name) #name, &make_by < &name>
constexpr Row kModels[] = {
    {ROW(lenet), {1, 28, 28}, false},
    {ROW(alexnet)},
    {ROW(vgg11)},
    {ROW(vgg13)},
    {ROW(vgg16)},
    {ROW(vgg19)},
    {ROW(vgg11_bn)},
    {ROW(vgg13_bn)},
    {ROW(vgg16_bn)},
    {ROW(vgg19_bn)},
    {ROW(resnet18)},
    {ROW(resnet34)},
    {ROW(resnet50)},
    {ROW(resnet101)},
    {ROW(resnet152)},
    {ROW(resnext50_32x4d)},
    {ROW(resnext101_32x8d)},
    {ROW(wide_resnet50_2)},
    {ROW(wide_resnet101_2)},
    {ROW(densenet121)},
    {ROW(densenet161)},
    {ROW(densenet169)},
    {ROW(densenet201)},
    {ROW(squeezenet1_0)},
    {ROW(squeezenet1_1)},
    {ROW(shufflenet_v2_x0_5)},
    {ROW(shufflenet_v2_x1_0)},
    {ROW(shufflenet_v2_x1_5)},
    {ROW(shufflenet_v2_x2_0)},
    {ROW(mobilenet_v2)},
    {ROW(mobilenet_v3_large)},
    {ROW(mobilenet_v3_small)},
    {ROW(efficientnet_b0)},
    {ROW(efficientnet_b1), {3, 240, 240}},
    {ROW(efficientnet_b2), {3, 288, 288}},
    {ROW(efficientnet_b3), {3, 300, 300}},
    {ROW(efficientnet_b4), {3, 380, 380}},
    {ROW(efficientnet_b5), {3, 456, 456}},
    {ROW(efficientnet_b6), {3, 528, 528}},
    {ROW(efficientnet_b7), {3, 600, 600}},
    {ROW(convnext_tiny)},
    {ROW(convnext_small)},
    {ROW(convnext_base)},
    {ROW(convnext_large)},
    {ROW(vit_b_16), kImageNet, false},
    {ROW(vit_b_32), kImageNet, false},
    {ROW(vit_l_16), kImageNet, false},
    {ROW(vit_l_32), kImageNet, false},
    {ROW(unet), {3, 256, 256}},
};
#undef ROW

const Row& row_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Row& r : kModels) {
    if (name == r.name) return r;
    names.push_back(r.name);
  }
  const std::string near = nearest_word(name, names);
  TD_FAIL(Value, "there is no model named '{}'\n{}", name,
          near.empty() ? "models::list() gives the names." : "Did you mean '" + near + "'?");
}

ModelInfo info_of(const Row& r) { return {r.name, {r.input.begin(), r.input.end()}, r.any_size}; }

}  // namespace

nn::AnyModule make(const std::string& name, const ModelOptions& options) {
  return row_of(name).make(name, options);
}
std::vector<ModelInfo> list() {
  std::vector<ModelInfo> out;
  for (const Row& r : kModels) out.push_back(info_of(r));
  return out;
}
ModelInfo info(const std::string& name) { return info_of(row_of(name)); }

}  // namespace tandem::models
