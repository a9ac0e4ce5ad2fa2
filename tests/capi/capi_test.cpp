// SPDX-License-Identifier: Apache-2.0
// tandem_c.h in this process: right and wrong calls, threads, models of all kinds, and sequences of
// calls from random bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "tandem/base/files/private_folder.h"
#include "tandem/edge/mini/mini_text_internal.h"
#include "tandem/onnx/onnx.h"
#include "tandem/recipe/train.h"
#include "tandem/tandem.h"
#include "tandem/tandem_c.h"
#include "tests/capi/capi_net.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

#define TANDEM_IN_PROCESS
#include "tests/capi/call_sequence.h"
#include "tests/capi/misuse.c"
#include "tests/capi/threads.c"

namespace tandem {
namespace {

struct CapiFolder {
  std::string path = PrivateFolder::temporary("capi").path();
  ~CapiFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name, const std::string& bytes) const {
    write_file(path + "/" + name, bytes);
    return path + "/" + name;
  }
};

struct Bytes {
  std::string bytes;
};
/// A model that goes with this object.
struct Loaded {
  tandem_model* model = nullptr;
  explicit Loaded(const std::string& path, const tandem_load_options* options = nullptr) {
    EXPECT_EQ(tandem_load(path.c_str(), options, &model), TANDEM_OK) << tandem_last_error();
  }
  explicit Loaded(const Bytes& b) {
    const std::string_view bytes = b.bytes;
    EXPECT_EQ(tandem_load_memory(bytes.data(), bytes.size(), nullptr, &model), TANDEM_OK)
        << tandem_last_error();
  }
  ~Loaded() { EXPECT_EQ(tandem_free(model), TANDEM_OK); }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
};

std::string port_text(const tandem_tensor& t) {
  tandem_tensor copy = t;
  std::string out = fmt::format("{} {}", t.name, tandem_dtype_name(t.dtype));
  if (t.rank < 0) return out;
  out += "[";
  for (int32_t d = 0; d < t.rank; ++d) out += fmt::format("{}{}", d ? ", " : "", copy.sizes[d]);
  return out + "]";
}
/// "x float32[-1, 3] -> y float32[-1, 2]"
std::string ports_of(tandem_model* model) {
  size_t inputs = 0, outputs = 0;
  EXPECT_EQ(tandem_count(model, &inputs, &outputs), TANDEM_OK);
  std::string out;
  tandem_tensor t;
  for (size_t k = 0; k < inputs; ++k) {
    EXPECT_EQ(tandem_input(model, k, &t), TANDEM_OK);
    out += (k ? ", " : "") + port_text(t);
  }
  for (size_t k = 0; k < outputs; ++k) {
    EXPECT_EQ(tandem_output(model, k, &t), TANDEM_OK);
    out += (k ? ", " : " -> ") + port_text(t);
  }
  return out;
}

TEST(Capi, RightAndWrongCalls) {
  const CapiFolder f;
  EXPECT_EQ(misuse(f.file("net.onnx", capi_net()).c_str()), 0);
}

TEST(Capi, ThreadsShareAModel) {
  const CapiFolder f;
  EXPECT_EQ(threads_test(f.file("net.onnx", capi_net()).c_str()), 0);
}

TEST(Capi, HasTheValuesOfEagerCode) {
  const std::string bytes = capi_net();
  const Loaded m(Bytes{bytes});
  net_call c;
  ASSERT_EQ(run_call(m.model, right_call(&c)), TANDEM_OK) << tandem_last_error();
  const auto want = onnx::OnnxModel::parse(bytes)(
      {from_blob(c.ids, {4}, DType::i64), from_blob(c.x, {4, 3}, DType::f32)});
  const auto y = want[0].to_vector<float>();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(c.y[i], y[i], 1e-6);
  EXPECT_EQ(std::vector<int64_t>(c.top, c.top + 4), want[1].to_vector<int64_t>());
}

TEST(Capi, SizesThatAreOpen) {
  const Loaded m(Bytes{capi_net(-1)});
  EXPECT_EQ(ports_of(m.model),
            "ids int64[-1], x float32[-1, 3] -> y float32[-1, 2], top int64[-1]");
  net_call all, c;
  ASSERT_EQ(run_call(m.model, right_call(&all)), TANDEM_OK) << tandem_last_error();
  for (const int64_t n : {3, 1, 0}) {
    right_call(&c);
    c.in[0].sizes[0] = c.in[1].sizes[0] = n;
    c.in[0].bytes = static_cast<size_t>(n) * 8;
    c.in[1].bytes = static_cast<size_t>(n) * 12;
    ASSERT_EQ(run_call(m.model, &c), TANDEM_OK) << n << ": " << tandem_last_error();
    EXPECT_EQ(c.out[0].sizes[0], n);
    EXPECT_EQ(c.out[1].sizes[0], n);
    for (int64_t i = 0; i < 2 * n; ++i) EXPECT_NEAR(c.y[i], all.y[i], 1e-6);
    EXPECT_EQ(c.y[2 * n], 0);
  }
  right_call(&c)->in[0].sizes[0] = 3;
  c.in[0].bytes = 24;
  const tandem_status status = run_call(m.model, &c);
  EXPECT_TRUE(status == TANDEM_ERROR_SHAPE || status == TANDEM_ERROR_ARGUMENT)
      << status << tandem_last_error();
}

TEST(Capi, ModelsOfAllKinds) {
  const CapiFolder f;
  const Loaded named("lenet");
  EXPECT_TRUE(has(ports_of(named.model), "x float32[-1, 1, 28, 28] -> y float32[-1, 10]"))
      << ports_of(named.model);
  const std::string made = f.path + "/lenet.tflite", onnx_file = f.path + "/lenet.onnx";
  manual_seed(3);
  recipe::write_tflite({.model = "lenet"}, made, {.shapes = "x:1x1x28x28"});
  const std::string bytes = read_file(made);
  const Loaded file(made), memory(Bytes{bytes});
  EXPECT_EQ(ports_of(file.model), "x float32[1, 1, 28, 28] -> y float32[1, 10]");
  EXPECT_EQ(ports_of(memory.model), ports_of(file.model));
  std::vector<float> x(784, 0.25F), a(10), b(10);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) / 17;
  for (auto [model, to] : {std::pair(file.model, a.data()), {memory.model, b.data()}}) {
    tandem_tensor in, out;
    ASSERT_EQ(tandem_input(model, 0, &in), TANDEM_OK);
    ASSERT_EQ(tandem_output(model, 0, &out), TANDEM_OK);
    in.data = x.data(), in.bytes = x.size() * 4;
    out.data = to, out.bytes = 40;
    ASSERT_EQ(tandem_run(model, &in, 1, &out, 1), TANDEM_OK) << tandem_last_error();
  }
  EXPECT_EQ(a, b);
  EXPECT_NE(a[0], a[1]);
}

TEST(Capi, ATrainedRun) {
  const CapiFolder f;
  f.file("recipe.yaml",
         "recipe: r\nseed: 0\ndata: {type: digits}\nmodel: {type: mlp, hidden: [4]}\nloss: {type: "
         "cross_entropy}\n"
         "optim: {type: sgd, lr: 0.01}\ntrainer: {max_steps: 2, report: false}\n");
  const std::string run = f.path + "/run";
  recipe::train(recipe::Recipe::load(f.path + "/recipe.yaml"), {.folder = run, .progress = false});
  const Loaded m(run);
  tandem_tensor x, y;
  ASSERT_EQ(tandem_input(m.model, 0, &x), TANDEM_OK);
  EXPECT_EQ(x.sizes[0], -1);
  ASSERT_EQ(tandem_output(m.model, 0, &y), TANDEM_OK);
  EXPECT_EQ(port_text(y), "output float32[-1, 10]");
  std::vector<float> pixels(128, 0.5F), scores(20);
  x.sizes[0] = 2;
  x.data = pixels.data(), x.bytes = pixels.size() * 4;
  y.data = scores.data(), y.bytes = scores.size() * 4;
  ASSERT_EQ(tandem_run(m.model, &x, 1, &y, 1), TANDEM_OK) << tandem_last_error();
  EXPECT_EQ(y.sizes[0], 2);
  recipe::Predictor predictor(run);
  const auto want =
      predictor.forward({from_blob(pixels.data(), {2, 1, 8, 8}, DType::f32)})[0].to_vector<float>();
  EXPECT_EQ(scores, want);
}

struct BadModel {
  const char* what;
  std::string bytes;
  tandem_status status;
  const char* says;
};

TEST(Capi, WhatIsNoModel) {
  const CapiFolder f;
  const std::string net = capi_net();
  const BadModel all[] = {
      {"text", "no model", TANDEM_ERROR_FORMAT, "the model in memory"},
      {"half", net.substr(0, net.size() / 2), TANDEM_ERROR_FORMAT, "the model in memory"},
      {"zip", "PK\x03\x04 and more", TANDEM_ERROR_FORMAT, "the model in memory"},
      {"tflite", std::string("\x1c\0\0\0TFL3", 8) + "rest", TANDEM_ERROR_FORMAT,
       "the model in memory"},
  };
  tandem_model* model = nullptr;
  for (const BadModel& b : all) {
    EXPECT_EQ(tandem_load_memory(b.bytes.data(), b.bytes.size(), nullptr, &model), b.status)
        << b.what << ": " << tandem_last_error();
    EXPECT_TRUE(has(tandem_last_error(), b.says)) << b.what << ": " << tandem_last_error();
    EXPECT_EQ(model, nullptr) << b.what;
  }
  EXPECT_EQ(tandem_load_memory(nullptr, 9, nullptr, &model), TANDEM_ERROR_ARGUMENT);
  EXPECT_EQ(tandem_load_memory(net.data(), 0, nullptr, &model), TANDEM_ERROR_ARGUMENT);
  EXPECT_EQ(tandem_load(nullptr, nullptr, &model), TANDEM_ERROR_ARGUMENT);
  EXPECT_EQ(tandem_load("", nullptr, &model), TANDEM_ERROR_ARGUMENT);
  EXPECT_EQ(tandem_load((f.path + "/none.onnx").c_str(), nullptr, &model), TANDEM_ERROR_IO)
      << tandem_last_error();
  EXPECT_EQ(tandem_load("lenett", nullptr, &model), TANDEM_ERROR_ARGUMENT) << tandem_last_error();
  tandem_load_options options{sizeof options, nullptr, nullptr, "cuda:99"};
  EXPECT_NE(tandem_load("lenet", &options, &model), TANDEM_OK);
  options = {sizeof options, "/no/weights", nullptr, nullptr};
  EXPECT_EQ(tandem_load("lenet", &options, &model), TANDEM_ERROR_IO) << tandem_last_error();
  EXPECT_EQ(model, nullptr);
}

TEST(Capi, ResultsBelongToTheirThread) {
  const std::string before = tandem_last_error();
  const Loaded m(Bytes{capi_net()});
  net_call c;
  right_call(&c)->no_outputs = 1;
  c.out_count = 0;
  ASSERT_EQ(run_call(m.model, &c), TANDEM_OK);
  std::thread([&] {
    tandem_tensor t;
    EXPECT_EQ(tandem_result(m.model, 0, &t), TANDEM_ERROR_ARGUMENT);
    EXPECT_TRUE(has(tandem_last_error(), "in this thread"));
  }).join();
  EXPECT_EQ(tandem_last_error(), before);  // of this thread
}

TEST(Capi, DTypesAreThoseOfTheLibrary) {
  for (int i = 0; i < kDTypeCount; ++i) {
    EXPECT_STREQ(tandem_dtype_name(i + 1), to_string(static_cast<DType>(i)));
    EXPECT_EQ(tandem_dtype_bytes(i + 1), size_of(static_cast<DType>(i)));
  }
  int32_t before = 0, now = 0;
  EXPECT_EQ(tandem_get_threads(&before), TANDEM_OK);
  EXPECT_EQ(tandem_set_threads(1), TANDEM_OK);
  EXPECT_EQ(tandem_get_threads(&now), TANDEM_OK);
  EXPECT_EQ(now, 1);
  EXPECT_EQ(tandem_set_threads(0), TANDEM_OK);
  EXPECT_EQ(tandem_get_threads(&now), TANDEM_OK);
  EXPECT_EQ(now, before);
}

tandem_status load_capi_net(tandem_model** model) {
  static const std::string bytes = capi_net(-1);
  return tandem_load_memory(bytes.data(), bytes.size(), nullptr, model);
}

TEST(Capi, SequencesOfCalls) {
  std::mt19937_64 random(1);
  long succeeded = 0;
  for (int i = 0; i < 60; ++i) {
    unsigned char bytes[256];
    for (unsigned char& b : bytes) b = static_cast<unsigned char>(random());
    succeeded += run_call_sequence(bytes, sizeof bytes, load_capi_net);
  }
  EXPECT_GT(succeeded, 60);
}

}  // namespace
}  // namespace tandem
