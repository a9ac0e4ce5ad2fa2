// SPDX-License-Identifier: Apache-2.0
// Models as C++ source: the text for LeNet as it is, and a table of nets whose headers go through
// one call of the compiler with every warning an error; what they compute with the weights beside
// them has the bits of the nets that they were written from.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "tandem/base/files/private_folder.h"
#include "tandem/edge/module/calls_internal.h"
#include "tandem/init.h"
#include "tandem/models/registry.h"
#include "tandem/models/text/gpt.h"
#include "tandem/models/text/text_encoder.h"
#include "tandem/models/vision/detector.h"
#include "tandem/onnx/export.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tandem/ops/view/bits.h"
#include "tandem/recipe/cpp_source.h"
#include "tandem/recipe/quantize.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace tandem {
namespace {

// Layers that are several ops, dropout, and two results of which one is a state.
struct SequenceNet : nn::Module {
  nn::Embedding words{20, 6, {.padding_idx = 0}};
  nn::LSTM lstm{6, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true}};
  nn::MultiheadAttention mha{8, 2, {.batch_first = true}};
  nn::GRU gru{8, 3};
  nn::LSTM last{3, 4};
  nn::GroupNorm group{1, 3};
  nn::Dropout drop{0.25};
  nn::PReLU prelu;
  SequenceNet() { TD_REGISTER(words, lstm, mha, gru, last, group, drop, prelu); }
  std::vector<Tensor> forward(const Tensor& ids) {
    Tensor x = lstm(words(ids)).y;
    x = gru(mha(x, x, x)).y;
    const Tensor h = last(x).h;
    return {prelu(drop(group(x.transpose(1, 2)))), h};
  }
};

// Down, up and across; members with names that are none in C++, parameters beside layers.
struct SmallUNet : nn::Module {
  struct Double : nn::Module {
    nn::Sequential seq;
    Double(int64_t in, int64_t out)
        : seq(nn::Conv2d(in, out, 3, {.padding = 1}), nn::BatchNorm2d(out), nn::ReLU(),
              nn::Conv2d(out, out, 3, {.padding = 1, .groups = 2}), nn::BatchNorm2d(out),
              nn::LeakyReLU(0.2)) {
      TD_REGISTER(seq);
    }
    Tensor forward(Tensor x) { return seq(x); }
  };
  Double in{3, 4}, down{4, 8}, out{8, 4};
  nn::ConvTranspose2d up{8, 4, 2, {.stride = 2}};
  nn::ModuleDict heads{{{"class", nn::Conv2d(4, 2, 1)}, {"forward", nn::Conv2d(4, 3, 1)}}};
  Param scale{full({1, 4, 1, 1}, 1.5)};
  Buffer shift{full({4, 1, 1}, 0.25)};
  SmallUNet() { TD_REGISTER(in, down, out, up, heads, scale, shift); }
  std::vector<Tensor> forward(const Tensor& x) {
    const Tensor a = in(x), b = down(max_pool2d(a, 2));
    Tensor y = out(cat({a, up(b)}, 1)) * scale + shift;
    y = 1 - y / (abs(y) + 2) - (y - 3);
    return {heads["class"](y), softmax(heads["forward"](y), 1)};
  }
};

// Functions that no layer calls.
struct CallsNet : nn::Module {
  Buffer scale{tensor({0.02f})}, zero{full({1}, 3, DType::u8)}, scales{rand({4}) + 0.1};
  Buffer codes{randint(-127, 127, {3, 4, 3, 3}).to(DType::i8)}, grid{rand({1, 5, 5, 2})};
  Buffer rows{(rand({4, 6}) * 100.0).to(DType::i8)}, at{tensor({2, 0})};
  nn::Linear first{4, 4}, second{4, 4}, third{4, 4}, fourth{4, 4}, fifth{4, 4};
  CallsNet() {
    TD_REGISTER(scale, zero, scales, codes, grid, rows, at, first, second, third, fourth, fifth);
  }
  std::vector<Tensor> forward(const Tensor& in) {
    const Tensor x = first(second(third(fourth(fifth(in)))));  // [n, 4, 4]
    const Tensor square = matmul(x, x.transpose(1, 2)) + eye(4), image = x.unsqueeze(1);
    const Tensor wide = expand(image, {image.shape(0), 4, 4, 4}),
                 q = quantize_linear(x, scale, zero);
    const DynamicCodes d = dynamic_quantize_linear(x);
    const auto [sign, logabsdet] = linalg::slogdet(square);
    const Tensor columns = unfold(image, IntList{2, 2}, {1, 1}, {1, 1}, {2, 2});
    return {dequantize_linear(q, scale, zero),
            dequantize_linear(quantize_linear(x, scales, {}, 2, DType::i8), scales, {}, 2),
            fake_quantize(x, scale, zero, {.low = 0, .high = 255}),
            matmul_integer(d.codes, rows, d.zero).to(DType::f32) * d.scale,
            conv_integer(
                quantize_linear(wide, scale, zero), codes, zero, {},
                {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .padding_end = {1, 1}}),
            diagonal(x, 1, 1, 2),
            unfold(x, 2, 2, 1),
            columns,
            fold(columns, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {2, 2}),
            bitcast(x, DType::i32),
            cdist(x, x),
            linear_scan(sigmoid(x), x, 1, true),
            linspace(0, 1, 4) * x,
            linalg::cholesky(square),
            linalg::solve_triangular(square, x, false),
            linalg::solve(square, x),
            linalg::inv(square),
            linalg::det(square),
            sign,
            logabsdet,
            linalg::lu_factor(square).LU,
            linalg::svd(square).S,
            linalg::matrix_exp(x),
            grid_sample(image, expand(grid, {image.shape(0), 5, 5, 2}), "bicubic", "reflection"),
            index_put(x, {Slice(), at.value()}, x.narrow(1, 0, 2), true)};
  }
};

struct ModuleCase {
  std::string name;
  nn::AnyModule net;
  std::function<std::vector<Tensor>(std::span<const Tensor>)> forward;
  std::vector<Tensor> example;  // of batch 2
  bool trains = true;           // in training mode it is the same, too: no dropout
};

template <class M>
ModuleCase case_of(const std::string& name, M net, Tensor x, bool trains = true) {
  nn::AnyModule any(net);
  const auto forward = [net](std::span<const Tensor> in) mutable {
    if constexpr (std::is_same_v<M, SequenceNet> || std::is_same_v<M, SmallUNet> ||
                  std::is_same_v<M, CallsNet>)
      return net.forward(in[0]);
    else
      return std::vector<Tensor>{net(in[0])};
  };
  return {name, any, forward, {std::move(x)}, trains};
}

Tensor some_ids(int64_t most) { return (rand({2, 7}) * static_cast<double>(most)).to(DType::i64); }

std::vector<ModuleCase> module_cases() {
  const models::TextEncoderOptions text{
      .vocabulary = 30, .classes = 4, .layers = 2, .heads = 2, .width = 16, .hidden = 24};
  return {
      case_of("lenet", models::make("lenet"), randn({2, 1, 28, 28})),
      case_of("resnet18", models::make("resnet18", {.num_classes = 5}), randn({2, 3, 64, 64})),
      case_of("mobilenet", models::make("mobilenet_v2", {.num_classes = 5}), randn({2, 3, 64, 64}),
              false),
      case_of("shufflenet", models::make("shufflenet_v2_x0_5", {.num_classes = 5}),
              randn({2, 3, 64, 64})),
      case_of("detector", models::Detector(), randn({2, 3, 64, 64})),
      case_of("gpt",
              models::GPT({.vocabulary = 30,
                           .context = 9,
                           .layers = 3,
                           .heads = 2,
                           .width = 8,
                           .dropout = 0.1}),
              some_ids(30), false),
      case_of("encoder", models::TextEncoder(text), some_ids(30), false),
      case_of("sequence", SequenceNet(), some_ids(20), false),
      case_of("small_unet", SmallUNet(), randn({2, 3, 16, 16})),
      case_of("calls", CallsNet(), randn({2, 4, 4})),
  };
}

// Values that no layer starts with: norms and biases that do nothing would hide mistakes.
void draw_values(nn::Module& net) {
  NoGradGuard no_grad;
  for (auto& [name, p] : net.named_parameters())
    if (p.dim() < 2) p.assign_(p.value() + randn(p.shape()) * 0.1);
  for (auto& [name, b] : net.named_buffers())
    if (is_floating(b.dtype())) b.assign_(b.value() + rand(b.shape()) * 0.2);
}

edge::ModuleSource source_of(ModuleCase& c) {
  std::vector<edge::EdgePort> ports;
  std::vector<DynamicDim> open = {{0, 0, "batch"}};
  if (!is_floating(c.example[0].dtype()) && c.name != "sequence") open.push_back({0, 1, "length"});
  for (const Spec& s : onnx::export_specs(c.example, open))
    ports.push_back({is_floating(s.dtype) ? "x" : "ids", s});
  edge::ModuleOptions options;
  options.name_space = c.name;
  options.weights = c.name + ".safetensors";
  c.net.eval();
  return recipe::cpp_source(c.net.module(), c.forward, ports, options);
}

std::string library_folder() {
  const char* tool = std::getenv("TANDEM_TOOL");
  return tool ? (std::filesystem::path(tool).parent_path() / "lib").string() : "";
}

// The program that calls every net: outputs for each input of NAME_in, then one in training mode.
std::string program_of(const std::vector<std::string>& names) {
  std::string s;
  for (const std::string& n : names) s += fmt::format("#include \"{}.h\"\n", n);
  s += R"(#include "tandem/init.h"
using namespace tandem;
template <class N>
void call(N& net, const Tensor& x, const std::string& what, StateDict& out) {
  const auto y = net.forward(x);
  if constexpr (std::is_same_v<std::decay_t<decltype(y)>, Tensor>)
    out[what + ".0"] = y;
  else
    for (size_t i = 0; i < y.size(); ++i) out[what + "." + std::to_string(i)] = y[i].contiguous();
}
template <class N>
void run(const std::string& name) {
  N net;
  const StateDict values = load(name + ".safetensors");
  if (!weights::load_into(net, values).ok()) std::abort();
  net.load_state_dict(values);
  net.eval();
  NoGradGuard no_grad;
  StateDict out;
  for (const auto& [what, x] : load(name + "_in.safetensors")) {
    if (what == "train") net.train();
    call(net, x, what, out);
  }
  save(out, name + "_out.safetensors");
}
int main() {
  init();
)";
  for (const std::string& n : names) s += fmt::format("  run<{}::Net>(\"{}\");\n", n, n);
  return s + "}\n";
}

int compile_and_run(const std::string& folder, const std::vector<std::string>& names) {
  write_file(folder + "/program.cpp", program_of(names));
  const char* cxx = std::getenv("CXX");
  return std::system(
      fmt::format("cd {} && {} -std=c++20 -O0 -Wall -Wextra -Werror -I{} program.cpp "
                  "-o program -L{} -ltandem -lfmt -Wl,-rpath,{} && ./program",
                  folder, cxx ? cxx : "c++", std::getenv("TANDEM_SOURCE_DIR"), library_folder(),
                  library_folder())
          .c_str());
}

bool can_build() {
  if (kSanitized) return false;  // programs would need the sanitizers' libraries, too
  return std::filesystem::exists(library_folder() + "/libtandem.so") &&
         std::getenv("TANDEM_SOURCE_DIR");
}

// Inputs of batches 1 and 3, and what the net gives for them.
struct Expected {
  StateDict in, out;
};
Expected expected_of(ModuleCase& c) {
  NoGradGuard no_grad;
  Expected e;
  const Tensor& x = c.example[0];
  e.in["one"] = x.narrow(0, 0, 1).contiguous();
  e.in["three"] = cat({x, x.narrow(0, 0, 1)}, 0);
  if (c.trains) e.in["train"] = x;
  for (const auto& [what, in] : e.in) {
    c.net.train(what == "train");
    const std::vector<Tensor> y = c.forward({{in}});
    for (size_t i = 0; i < y.size(); ++i) e.out[fmt::format("{}.{}", what, i)] = y[i].contiguous();
  }
  return e;
}

// x W^T + b as MatMul and Add, an activation by its expression, constants, and sizes computed from
// others: what other frameworks' files hold.
void write_functional_onnx(const std::string& path) {
  const Param w1(randn({12, 8}) * 0.3), w2(randn({8, 3}) * 0.3), b2(randn({3}));
  const auto f = [&](const Tensor& x) {
    Tensor y = matmul(flatten(x, 1), Tensor(w1));
    y = y * sigmoid(y) + 0.5;
    y = clamp(matmul(y, Tensor(w2)) + Tensor(b2), -2.0, 2.0);
    return log_softmax(y - amax(y, {1}, true), 1);
  };
  onnx::export_onnx(f, randn({2, 3, 4}), path, {.dynamic = {{0, 0, "n"}}});
}

TEST(EdgeModule, GivesTheBitsOfTheNet) {
  init();
  if (!can_build()) GTEST_SKIP() << "needs libtandem.so beside the tool";
  manual_seed(11);
  const std::string folder = PrivateFolder::temporary("module").path();
  std::vector<ModuleCase> cases = module_cases();
  std::vector<std::string> names;
  std::vector<Expected> expected;
  for (ModuleCase& c : cases) {
    draw_values(c.net.module());
    const edge::ModuleSource s = source_of(c);
    EXPECT_GT(s.layers, 4u) << c.name;
    write_file(fmt::format("{}/{}.h", folder, c.name), s.header);
    save(s.weights, fmt::format("{}/{}.safetensors", folder, c.name));
    expected.push_back(expected_of(c));
    save(expected.back().in, fmt::format("{}/{}_in.safetensors", folder, c.name));
    names.push_back(c.name);
  }
  // A file of a graph.
  const std::string file_of_graph = folder + "/graph.onnx";
  write_functional_onnx(file_of_graph);
  const recipe::CppFile file =
      recipe::write_cpp({.model = file_of_graph}, folder + "/functional.h");
  EXPECT_TRUE(
      has(error_of([&] { recipe::write_cpp({.model = file_of_graph}, folder + "/graph.h"); }),
          "graph.safetensors' may hold the weights of"));
  EXPECT_EQ(file.layers, 2u);
  const auto graph = onnx::OnnxModel::load(file_of_graph);
  Expected e;
  for (const int64_t n : {1, 3}) {
    const Tensor x = randn({n, 3, 4});
    e.in[std::to_string(n)] = x;
    e.out[fmt::format("{}.0", n)] = graph({x})[0];
  }
  save(e.in, folder + "/functional_in.safetensors");
  expected.push_back(e);
  names.push_back("functional");
  // One whose channels are last.
  const std::string mobile = folder + "/mobile.tflite";
  recipe::write_tflite({.model = "lenet"}, mobile);
  EXPECT_EQ(recipe::write_cpp({.model = mobile}, folder + "/channels_last.h").calls, 7u);
  Expected of_mobile;
  const Tensor image = randn({1, 1, 28, 28});
  of_mobile.in["1"] = image;
  of_mobile.out["1.0"] = recipe::load_any({.model = mobile}).run({image})[0];
  save(of_mobile.in, folder + "/channels_last_in.safetensors");
  expected.push_back(of_mobile);
  names.push_back("channels_last");

  // Layers on codes.
  io::save_npy(randn({4, 1, 28, 28}), folder + "/images.npy");
  for (const bool dynamic : {false, true}) {
    const std::string name = dynamic ? "each_call" : "qdq", coded = folder + "/" + name + "_q.onnx";
    recipe::QuantizeFileOptions options;
    options.quant.dynamic = dynamic;
    options.data = folder + "/images.npy";
    recipe::quantize_file({.model = "lenet"}, coded, options);
    EXPECT_GT(recipe::write_cpp({.model = coded}, folder + "/" + name + ".h").calls, 7u);
    Expected of_codes;
    of_codes.in["1"] = image;
    of_codes.out["1.0"] = onnx::OnnxModel::load(coded)({image})[0];
    save(of_codes.in, folder + "/" + name + "_in.safetensors");
    expected.push_back(of_codes);
    names.push_back(name);
  }

  ASSERT_EQ(compile_and_run(folder, names), 0) << "in " << folder;
  for (size_t k = 0; k < names.size(); ++k) {
    const StateDict got = load(fmt::format("{}/{}_out.safetensors", folder, names[k]));
    EXPECT_EQ(got.size(), expected[k].out.size()) << names[k];
    for (const auto& [what, want] : expected[k].out) {
      const bool same_ops = k < cases.size();  // in files linear() stands for matmul and add
      EXPECT_TRUE(same_ops ? equal(got.at(what), want) : allclose(got.at(what), want, 1e-6, 1e-6))
          << names[k] << " " << what << " differs by "
          << amax(abs(got.at(what) - want)).item<double>();
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(EdgeModule, ReadsAsIfWrittenByHand) {
  init();
  ModuleCase c = case_of("lenet", models::make("lenet"), randn({2, 1, 28, 28}));
  const edge::ModuleSource s = source_of(c);
  EXPECT_EQ(s.header,
            R"(// A model as a module of Tandem.
// Written by `tandem compile --target cpp`; edit it as you like.
//
//   lenet::Net net;
//   weights::load_into(net, load("lenet.safetensors"));
//   net.eval();
//   Tensor y = net(x);
#pragma once

#include "tandem/tandem.h"

namespace lenet {
using namespace tandem;

struct Net : nn::Module {
  nn::Conv2d conv1{1, 6, 5, {.padding = 2}};
  nn::Conv2d conv2{6, 16, 5};
  nn::Linear fc1{400, 120};
  nn::Linear fc2{120, 84};
  nn::Linear fc3{84, 10};

  Net() { TD_REGISTER(conv1, conv2, fc1, fc2, fc3); }
  Tensor forward(Tensor x) {
    x = relu(conv1(x));
    x = max_pool2d(x, 2);
    x = relu(conv2(x));
    x = max_pool2d(x, 2);
    x = flatten(x, 1);
    x = relu(fc1(x));
    x = relu(fc2(x));
    return fc3(x);
  }
};

}  // namespace lenet
)");
}

TEST(EdgeModule, RepeatedBlocksAreOneClass) {
  init();
  std::vector<ModuleCase> cases = module_cases();
  const auto text_of = [&](const std::string& name) {
    for (ModuleCase& c : cases)
      if (c.name == name) return source_of(c).header;
    return std::string();
  };
  const std::string resnet = text_of("resnet18"), gpt = text_of("gpt"),
                    unet = text_of("small_unet"), sequence = text_of("sequence");
  for (const char* line : {"  explicit BasicBlock(int64_t in_channels)\n",
                           "  nn::Sequential layer2{BasicBlock2(64, 128), BasicBlock(128)};\n"})
    EXPECT_TRUE(has(resnet, line)) << resnet;
  for (const char* line :
       {"  std::vector<Block> h = nn::repeat(3, [] { return Block(); });\n",
        "    for (Block& block : h) x = block(x);\n", "    return linear(x, wte.weight);\n",
        "  nn::Dropout drop{0.1};\n",
        "  Tensor forward(Tensor ids) {\n    const Dim length = ids.shape(1);\n"})
    EXPECT_TRUE(has(gpt, line)) << gpt;
  for (const char* line :
       {"  Double down{4, 8};\n", "  nn::ConvTranspose2d up{8, 4, 2, {.stride = 2}};\n",
        "  Param scale{zeros({1, 4, 1, 1})};\n", "  nn::Conv2d heads_class{4, 2, 1};\n",
        "  std::vector<Tensor> forward(Tensor x) {\n"})
    EXPECT_TRUE(has(unet, line)) << unet;
  for (const char* line :
       {"  nn::LSTM lstm{6, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true}};\n",
        "  nn::MultiheadAttention mha{8, 2, {.batch_first = true}};\n",
        "  nn::GroupNorm group{1, 3};\n", "  nn::Embedding words{20, 6, {.padding_idx = 0}};\n"})
    EXPECT_TRUE(has(sequence, line)) << sequence;
}

// Models whose modules are not called as such: ops lie where the layers around them do.
TEST(EdgeModule, FindsTheModulesOfAFolder) {
  init();
  const char* source = std::getenv("TANDEM_SOURCE_DIR");
  if (!source) GTEST_SKIP() << "needs TANDEM_SOURCE_DIR";
  const std::string folder = PrivateFolder::temporary("module").path();
  recipe::write_cpp({.model = fmt::format("{}/tests/golden/hf/qwen2", source)}, folder + "/qwen.h");
  const std::string text = read_file(folder + "/qwen.h");
  for (const char* line :
       {"struct SelfAttn : nn::Module {\n", "    x = x + self_attn.forward(x1, y, z, u);\n",
        "  Block layers_1;\n", "  nn::RMSNorm norm{8, {.eps = 1e-06}};\n",
        "  Tensor forward(Tensor input_ids, Tensor attention_mask) {\n"})
    EXPECT_TRUE(has(text, line)) << text;
  std::filesystem::remove_all(folder);
}

// Weights have the names of their members: those of the net where a path has no other name.
TEST(EdgeModule, WeightsHaveTheNamesOfTheNet) {
  init();
  ModuleCase c =
      case_of("resnet18", models::make("resnet18", {.num_classes = 5}), randn({2, 3, 64, 64}));
  const StateDict written = source_of(c).weights, held = c.net.state_dict();
  EXPECT_EQ(written.size(), held.size());
  for (const auto& [name, t] : held) {
    ASSERT_TRUE(written.contains(name)) << name;
    EXPECT_TRUE(equal(written.at(name), t)) << name;
  }
}

TEST(EdgeModule, WritesEveryModelByName) {
  init();
  for (const char* name :
       {"squeezenet1_1", "densenet121", "mobilenet_v3_small", "efficientnet_b0"}) {
    ModuleCase c = case_of("net", models::make(name), randn({2, 3, 64, 64}), false);
    const edge::ModuleSource s = source_of(c);
    EXPECT_EQ(s.weights.size(), c.net.state_dict().size()) << name;
  }
}

// Every row that they call has a form.
TEST(EdgeModule, WritesEveryFolder) {
  init();
  const char* source = std::getenv("TANDEM_SOURCE_DIR");
  if (!source) GTEST_SKIP() << "needs TANDEM_SOURCE_DIR";
  const std::string out = PrivateFolder::temporary("module").path() + "/net.h";
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(source) + "/tests/golden/hf"))
    if (recipe::is_model(entry.path().string())) {
      EXPECT_NO_THROW(recipe::write_cpp({.model = entry.path().string()}, out)) << entry.path();
    }
}

TEST(EdgeModule, FormsAreOfRows) {
  init();
  for (const std::string& row : edge::rows_with_cpp_form())
    EXPECT_NE(find_op(row), nullptr) << row << " is in the table of forms, not in that of ops";
}

TEST(EdgeModule, NamesAllThatHasNoForm) {
  init();
  const edge::EdgePort in{"x", Spec(DType::f32, Shape{4, 4})};
  const auto forward = [](std::span<const Tensor> x) {
    return std::vector{linalg::eigvalsh(x[0]), linalg::qr(x[0]).Q, linalg::qr(x[0] + 1).Q};
  };
  EXPECT_TRUE(has(error_of([&] {
                    edge::write_module(forward, {&in, 1});
                  }),
                  "these ops have no C++ form: 1 x eigh, 2 x qr"));
  EXPECT_TRUE(has(error_of([&] {
                    edge::write_module(forward, {&in, 1}, {.name = "a b"});
                  }),
                  "'a b' is not a name in C++"));
  EXPECT_TRUE(has(error_of([&] { recipe::write_cpp({.model = "lenet"}, "net.cpp"); }),
                  "'net.cpp' is not the name of a C++ header"));
}

}  // namespace
}  // namespace tandem
