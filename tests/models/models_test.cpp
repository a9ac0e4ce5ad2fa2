// SPDX-License-Identifier: Apache-2.0
// Models against torchvision (golden.json.gz, made by make_golden.py): the keys, shapes and dtypes
// of every state_dict in order, parameter counts, means and deviations of initial values, and
// logits with values that both sides compute from the keys.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "tandem/io/gzip.h"
#include "tandem/io/json.h"
#include "tandem/models/registry.h"
#include "tandem/models/vision/densenet.h"
#include "tandem/models/vision/mobilenet.h"
#include "tandem/models/vision/resnet.h"
#include "tandem/models/vision/unet.h"
#include "tandem/models/vision/vit.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

const io::Json& golden() {
  static const io::Json json = [] {
    init();
    const char* root = std::getenv("TANDEM_SOURCE_DIR");
    const std::string path = std::string(root ? root : ".") + "/tests/models/golden.json.gz";
    return io::parse_json(io::gunzip(read_file(path), size_t{64} << 20), path);
  }();
  return json;
}
const io::Json& field(const io::Json& j, const char* key) {
  const io::Json* v = j.find(key);
  if (!v) throw std::runtime_error(std::string("golden.json.gz has no ") + key);
  return *v;
}
double number(const io::Json& j) {
  return j.as_int() ? static_cast<double>(*j.as_int()) : *j.as_double();
}
std::vector<int64_t> sizes(const io::Json& j) {
  std::vector<int64_t> out;
  for (const io::Json& v : *j.as_array()) out.push_back(*v.as_int());
  return out;
}
Shape shape_of(const std::vector<int64_t>& s) {
  Shape out;
  for (const int64_t n : s) out.push_back(n);
  return out;
}

/// The values that make_golden.py gives the parameter or buffer `key`.
Tensor hashed(const std::string& key, const Shape& shape) {
  uint32_t h = 2166136261U;
  for (const char c : key) h = (h ^ static_cast<unsigned char>(c)) * 16777619U;
  const size_t n = static_cast<size_t>(shape.numel().value());
  const size_t rank = shape.size();
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) {
    uint32_t z = static_cast<uint32_t>(i) * 0x9E3779B9U + h;
    z ^= z >> 16;
    z *= 0x85EBCA6BU;
    z ^= z >> 13;
    z *= 0xC2B2AE35U;
    z ^= z >> 16;
    const double u = static_cast<double>(z >> 8) / 16777216;
    double x = (u - 0.5) * 0.2;
    if (key == "input")
      x = 2 * u - 1;
    else if (rank == 3)
      x = (2 * u - 1) * 0.1;
    else if (rank >= 2)
      x = (2 * u - 1) *
          std::sqrt(6 * static_cast<double>(shape[0].value()) / static_cast<double>(n));
    else if (key.ends_with("weight") || key.ends_with("running_var"))
      x = 0.5 + u;
    v[i] = static_cast<float>(x);
  }
  return tensor(v).reshape(shape);
}

nn::AnyModule make(const std::string& name) {
  using namespace models;
  if (name == "resnet50 dilated")
    return resnet50({.num_classes = 7, .replace_stride_with_dilation = {false, true, true}});
  if (name == "mobilenet_v2 narrow") return mobilenet_v2({.num_classes = 7, .width_mult = 0.5});
  if (name == "mobilenet_v3_large tail")
    return mobilenet_v3_large({.num_classes = 7, .reduced_tail = true, .dilated = true});
  if (name == "vit_b_32 small")
    return vit_b_32({.num_classes = 7, .image_size = 64, .representation_size = 32});
  if (name == "unet") return unet({.base = 16});
  if (name == "unet bilinear") return unet({.bilinear = true, .base = 16});
  return models::make(name);
}

std::string word(const std::string& name) {
  std::string out = name;
  for (char& c : out)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return out;
}
auto names(const char* list) {
  std::vector<std::string> out;
  for (const io::Json& e : *field(golden(), list).as_array())
    out.push_back(*field(e, "name").as_string());
  return out;
}
const io::Json& entry(const char* list, const std::string& name) {
  for (const io::Json& e : *field(golden(), list).as_array())
    if (*field(e, "name").as_string() == name) return e;
  throw std::runtime_error("no entry " + name);
}

class StateDictOf : public ::testing::TestWithParam<std::string> {};

TEST_P(StateDictOf, IsTorchvisions) {
  const io::Json& want = entry("keys", GetParam());
  manual_seed(1);
  const nn::AnyModule net = models::make(GetParam());
  EXPECT_EQ(net.num_parameters(), *field(want, "params").as_int());
  const StateDict state = net.state_dict();
  const io::Json::Array& entries = *field(want, "entries").as_array();
  ASSERT_EQ(state.size(), entries.size());
  size_t i = 0;
  for (const auto& [key, value] : state) {
    const io::Json::Array& e = *entries[i++].as_array();
    ASSERT_EQ(key, *e[0].as_string());
    EXPECT_EQ(value.shape(), shape_of(sizes(e[1]))) << key;
    EXPECT_EQ(to_string(value.dtype()), *e[2].as_string()) << key;
    const double mean = number(e[3]), deviation = number(e[4]);
    if (value.numel() < 2000) continue;
    const double got_mean = value.mean().item<float>(), got = value.std().item<float>();
    const double slack = 6 / std::sqrt(static_cast<double>(value.numel()));
    EXPECT_NEAR(got, deviation, slack * deviation + 1e-7) << key;
    EXPECT_NEAR(got_mean, mean, slack * deviation + 1e-7 + 1e-3 * std::abs(mean)) << key;
  }
}
INSTANTIATE_TEST_SUITE_P(Models, StateDictOf, ::testing::ValuesIn(names("keys")),
                         [](const auto& info) { return word(info.param); });

class LogitsOf : public ::testing::TestWithParam<std::string> {};

TEST_P(LogitsOf, AreTorchvisions) {
  const io::Json& want = entry("cases", GetParam());
  nn::AnyModule any = make(GetParam());
  nn::Module& net = any.module();
  StateDict values;
  for (const auto& [key, value] : net.state_dict())
    values[key] = value.dim() == 0 ? value : hashed(key, value.shape());
  net.load_state_dict(values);
  net.eval();
  NoGradGuard no_grad;
  const Tensor y = net(hashed("input", shape_of(sizes(field(want, "input")))));
  ASSERT_EQ(y.shape(), shape_of(sizes(field(want, "shape"))));
  // Sums of float32 in the order of this machine's vectors: 1.5e-5 was seen with eight lanes.
  const double bound = 2e-5 * number(field(want, "scale"));
  const Tensor flat = y.reshape({2, -1});
  size_t i = 0;
  for (const float v : flat.slice(1, 0, 7).contiguous().to_vector<float>())
    EXPECT_NEAR(v, number((*field(want, "first").as_array())[i++]), bound) << "logit " << i - 1;
  for (size_t n = 0; n < 2; ++n)
    EXPECT_NEAR(flat.select(0, static_cast<int64_t>(n)).mean().item<float>(),
                number((*field(want, "mean").as_array())[n]), bound);
}
INSTANTIATE_TEST_SUITE_P(Models, LogitsOf, ::testing::ValuesIn(names("cases")),
                         [](const auto& info) { return word(info.param); });

TEST(Registry, MakesByNameAndRefuses) {
  init();
  EXPECT_GE(models::list().size(), 40u);
  nn::AnyModule net = models::make("resnet18", {.num_classes = 5, .in_channels = 1});
  EXPECT_EQ(net.as<models::ResNet>().fc.out_features, 5);
  NoGradGuard no_grad;
  net.eval();
  EXPECT_EQ(net(zeros({1, 1, 32, 32})).shape(), shape_of({1, 5}));
  EXPECT_EQ(models::info("lenet").input, (std::vector<int64_t>{1, 28, 28}));
  auto text = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return std::string(to_string(e.kind())) + ": " + e.what();
    }
    return "no error";
  };
  EXPECT_NE(text([] { models::make("resnet19"); }).find("resnet18"), std::string::npos);
  EXPECT_NE(text([] { models::make("resnet18", {.image_size = 32}); }).find("image_size"),
            std::string::npos);
  EXPECT_NE(text([] { models::vit_b_16({.image_size = 100}); }).find("multiple"),
            std::string::npos);
}

// Blocks with shortcuts, groups, squeeze and excitation: a compiled step has the eager step's bits.
TEST(Models, CompiledStepsAreTheEagerOnes) {
  init();
  for (const char* name : {"mobilenet_v3_small", "shufflenet_v2_x0_5"}) {
    manual_seed(3);
    nn::AnyModule a = models::make(name, {.num_classes = 4});
    nn::AnyModule b = models::make(name, {.num_classes = 4});
    b.load_state_dict(a.state_dict());
    const Tensor x = randn({4, 3, 32, 32}), y = tensor(std::vector<int64_t>{0, 1, 2, 3});
    auto losses = [&](nn::AnyModule& net, bool compiled) {
      optim::SGD opt(net.parameters(), {.lr = 0.01});
      auto step = [&](Tensor in, Tensor label) {
        opt.zero_grad();
        Tensor loss = cross_entropy(net(in), label);
        loss.backward();
        opt.step();
        return loss.detach();
      };
      auto planned = compile(step);
      std::vector<float> out;
      manual_seed(5);
      for (int i = 0; i < 3; ++i)
        out.push_back((compiled ? planned(x, y) : step(x, y)).item<float>());
      return out;
    };
    EXPECT_EQ(losses(a, false), losses(b, true)) << name;
  }
}

}  // namespace
}  // namespace tandem
