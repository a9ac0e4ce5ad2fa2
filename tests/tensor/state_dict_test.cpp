// SPDX-License-Identifier: Apache-2.0
#include "tandem/tensor/state_dict.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

Tensor scalar(float v) {
  Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_tensor({}, float32, cpu)));
  *t.mutable_data<float>() = v;
  return t;
}

TEST(StateDict, KeepsTheOrderOfItsNames) {
  StateDict d;
  d["z"] = scalar(1);
  d["a"] = scalar(2);
  d["m"] = scalar(3);
  d["a"] = scalar(4);
  std::string names;
  for (const auto& [name, t] : d) names += name + std::to_string(t.item<int>()) + " ";
  EXPECT_EQ(names, "z1 a4 m3 ");
  EXPECT_TRUE(d.erase("a"));
  EXPECT_FALSE(d.erase("a"));
  EXPECT_EQ(d.size(), 2u);
  EXPECT_EQ(d.at("m").item<int>(), 3);
  EXPECT_EQ(d.find("a"), nullptr);
  d["a"] = scalar(5);
  EXPECT_EQ(to_string(d), "z: float32 []\nm: float32 []\na: float32 []");
  EXPECT_EQ(StateDict::of({{"x", scalar(1)}}).at("x").item<int>(), 1);
}

TEST(StateDictMustFail, UnknownAndRepeatedNames) {
  StateDict d;
  d["conv1.weight"] = scalar(1);
  auto error = [](auto f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(to_string(e.kind())) + ": " + e.what();
    }
    return std::string("no error");
  };
  EXPECT_EQ(error([&] { d.at("conv1.wieght"); }),
            "Value: there is no tensor 'conv1.wieght' among 1. Did you mean 'conv1.weight'?");
  EXPECT_EQ(error([&] { d.at("x"); }), "Value: there is no tensor 'x' among 1.");
  EXPECT_EQ(error([] {
              StateDict::of({{"x", Tensor()}, {"x", Tensor()}});
            }),
            "Value: the name 'x' comes twice.");
}

}  // namespace
}  // namespace tandem
