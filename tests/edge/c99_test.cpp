// SPDX-License-Identifier: Apache-2.0
// Nets as C99: all of them go through one call of the C compiler with every warning an error, and
// what they compute is compared with eager code, to the bit where the row's order allows.
#include <dlfcn.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tandem/edge/edge.h"
#include "tandem/init.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using EdgeFn = std::function<Tensor(const Tensor&)>;
struct EdgeCase {
  const char* what;
  Shape input;
  EdgeFn net;
  bool same_bits = false;
};

template <class M>
EdgeFn frozen(M net) {
  net.eval();
  return [net](const Tensor& x) mutable { return net(x); };
}

EdgeFn conv_of(const nn::ConvOptions& o, int64_t in, int64_t out, int64_t k) {
  return frozen(nn::Conv2d(in, out, k, o));
}

EdgeFn normalised() {
  nn::Conv2d conv(3, 8, 3, {.padding = 1});
  nn::BatchNorm2d norm(8);
  nn::Linear linear(8, 5);
  norm.eval();
  return [=](const Tensor& x) mutable {
    return softmax(linear(mean(relu(norm(conv(x))), {2, 3})), -1);
  };
}

EdgeFn lstm() {
  nn::LSTM net(3, 4);
  net.eval();
  return [=](const Tensor& x) mutable { return net(x).y; };
}

EdgeFn lookup() {
  nn::Embedding table(9, 4);
  return [=](const Tensor& x) mutable { return table((abs(x) * 2).to(DType::i64)); };
}

EdgeFn resized(const InterpolateOptions& o) {
  return [o](const Tensor& x) { return interpolate(x, o); };
}

EdgeFn mel() {
  const data::MelOptions o{
      .sample_rate = 8000, .spectrogram = {.n_fft = 256, .hop_length = 100}, .n_mels = 10};
  return [o](const Tensor& x) {
    return data::amplitude_to_DB(data::mel_spectrogram(x, o), {.top_db = 80});
  };
}

std::vector<EdgeCase> edge_cases() {
  return {
      {"pointwise",
       {3, 5},
       [](const Tensor& x) { return tanh(x * 2 + 1) * sigmoid(x) + exp(x); },
       true},
      {"broadcast", {3, 5}, [](const Tensor& x) { return x - amax(x, {1}, true); }, true},
      {"moves",
       {2, 3, 4},
       [](const Tensor& x) {
         return cat({flip(x, {2}), x}, 1).transpose(1, 2);
       },
       true},
      {"slice", {4, 6}, [](const Tensor& x) { return relu(narrow(x, 1, 2, 3)).t(); }, true},
      {"argmax", {4, 6}, [](const Tensor& x) { return argmax(x, 1).to(DType::f32); }, true},
      {"max pool", {2, 3, 7, 8}, [](const Tensor& x) { return max_pool2d(x, 3, 2, 1); }, true},
      {"mean pool", {2, 3, 7, 8}, [](const Tensor& x) { return avg_pool2d(x, 3, 2, 1); }},
      {"adaptive",
       {1, 2, 7, 5},
       [](const Tensor& x) {
         return adaptive_avg_pool2d(x, {3, 2});
       }},
      {"sum", {7, 130}, [](const Tensor& x) { return sum(x, {0}); }},
      {"cumsum", {3, 9}, [](const Tensor& x) { return cumsum(x, 1); }},
      {"matmul", {2, 5, 19}, [](const Tensor& x) { return matmul(x, x.transpose(1, 2)); }},
      {"layer norm", {4, 16}, frozen(nn::LayerNorm({16}))},
      {"linear", {3, 21}, frozen(nn::Linear(21, 6))},
      {"linear and bounds",
       {3, 21},
       [net = nn::Linear(21, 6)](const Tensor& x) mutable { return clamp(net(x), -0.5, 0.5) * 2; }},
      {"signs of linear",
       {3, 21},
       [net = nn::Linear(21, 6)](const Tensor& x) mutable { return (net(x) > 0).to(DType::f32); }},
      {"conv", {2, 3, 9, 8}, conv_of({.stride = 2, .padding = 1}, 3, 5, 3)},
      {"conv without padding", {1, 3, 9, 8}, conv_of({}, 3, 4, 3)},
      {"grouped", {1, 4, 7, 7}, conv_of({.padding = 2, .dilation = 2, .groups = 2}, 4, 6, 3)},
      {"depthwise", {1, 4, 6, 6}, conv_of({.padding = 1, .groups = 4}, 4, 4, 3)},
      {"depthwise, several each",
       {2, 3, 5, 7},
       conv_of({.padding = 2, .dilation = 2, .groups = 3}, 3, 6, 3)},
      {"depthwise, wide", {1, 2, 3, 40}, conv_of({.padding = 1, .groups = 2}, 2, 2, 3)},
      {"1x1", {2, 4, 5, 5}, conv_of({}, 4, 3, 1)},
      {"1x1 in blocks", {2, 4, 5, 5}, conv_of({.groups = 2}, 4, 10, 1)},
      {"1x1 of few positions", {2, 4, 3, 3}, conv_of({}, 4, 6, 1)},
      {"channels in turns", {1, 70, 6, 5}, conv_of({.stride = 2, .padding = 1}, 70, 9, 3)},
      {"one-dimensional", {2, 3, 37}, frozen(nn::Conv1d(3, 5, 4, {.stride = 3, .padding = 2}))},
      {"volume", {1, 2, 4, 5, 6}, frozen(nn::Conv3d(2, 4, 3, {.padding = 1}))},
      {"transposed",
       {2, 3, 5, 4},
       frozen(nn::ConvTranspose2d(3, 4, 3, {.stride = 2, .padding = 1, .output_padding = 1}))},
      {"LSTM", {5, 2, 3}, lstm()},
      {"twice", {2, 3, 4, 5}, resized({.scale_factor = 2.0}), true},
      {"nearest", {2, 3, 4, 5}, resized({.size = {7, 3}}), true},
      {"bilinear", {1, 3, 4, 5}, resized({.size = {7, 10}, .mode = "bilinear"})},
      {"corners",
       {1, 2, 4, 5},
       resized({.size = {1, 9}, .mode = "bilinear", .align_corners = true})},
      {"bicubic", {1, 2, 6, 5}, resized({.scale_factor = 1.5, .mode = "bicubic"})},
      {"antialias",
       {1, 2, 16, 9},
       resized({.size = {5, 9}, .mode = "bilinear", .antialias = true})},
      {"trilinear", {1, 2, 3, 4, 5}, resized({.scale_factor = 2.0, .mode = "trilinear"})},
      {"rfft", {3, 64, 2}, [](const Tensor& x) { return fft::rfft(x, {}, 1); }},
      {"rfft of 45", {2, 45}, [](const Tensor& x) { return fft::rfft(x) / 45; }},
      {"fft of 1", {3, 1, 2}, [](const Tensor& x) { return fft::fft(x); }},
      {"fft across", {12, 3, 2}, [](const Tensor& x) { return fft::fft(x, {}, 0); }},
      {"ifft", {2, 14, 2}, [](const Tensor& x) { return fft::ifft(x); }},
      {"irfft", {2, 9, 2}, [](const Tensor& x) { return fft::irfft(x); }},
      {"irfft of odd length", {9, 2, 2}, [](const Tensor& x) { return fft::irfft(x, 17, 0); }},
      {"mel spectrogram", {1, 900}, mel()},
      {"embedding", {2, 3}, lookup()},
      {"norm folded", {2, 3, 8, 8}, normalised()},
  };
}

// A folder with the sources of all cases and the library made of them.
struct Built {
  std::filesystem::path folder;
  void* library = nullptr;
  std::vector<edge::EdgeSource> nets;

  explicit Built(const std::vector<EdgeCase>& cases) {
    folder = std::filesystem::temp_directory_path() / fmt::format("tandem_edge_{}", getpid());
    std::filesystem::create_directories(folder);
    std::string files;
    for (size_t k = 0; k < cases.size(); ++k) {
      const edge::EdgePort in{"x", Spec(DType::f32, cases[k].input)};
      const std::string name = fmt::format("net{}", k);
      const auto forward = [&](std::span<const Tensor> x) {
        return std::vector{cases[k].net(x[0])};
      };
      nets.push_back(edge::write_c99(forward, {&in, 1}, {}, {.name = name}));
      std::ofstream(folder / (name + ".c")) << nets[k].source;
      std::ofstream(folder / (name + ".h")) << nets[k].header;
      files += " " + name + ".c";
    }
    const std::string line = fmt::format(
        "cd {} && cc -std=c99 -Wall -Wextra -Werror -pedantic -O1 -ffp-contract=off -fPIC "
        "-shared{} "
        "-o nets.so -lm",
        folder.string(), files);
    if (std::system(line.c_str()) == 0) library = dlopen((folder / "nets.so").c_str(), RTLD_NOW);
  }
  ~Built() {
    if (library) dlclose(library);
    std::filesystem::remove_all(folder);
  }
};

TEST(EdgeC99, AgreesWithEagerCode) {
  init();
  manual_seed(7);
  NoGradGuard no_grad;
  const std::vector<EdgeCase> cases = edge_cases();
  const Built built(cases);
  ASSERT_NE(built.library, nullptr) << "the C compiler refused the sources";
  for (size_t k = 0; k < cases.size(); ++k) {
    const Tensor x = randn(cases[k].input), want = cases[k].net(x).contiguous();
    Tensor got = zeros(want.shape());
    std::vector<uint64_t> arena(built.nets[k].arena_bytes / 8 + 1);
    using Run = int (*)(void*, const void*, void*);
    const auto run =
        reinterpret_cast<Run>(dlsym(built.library, fmt::format("net{}_run_in", k).c_str()));
    ASSERT_NE(run, nullptr) << cases[k].what;
    EXPECT_EQ(run(arena.data(), x.data_ptr(), got.mutable_data<float>()), 0) << cases[k].what;
    if (cases[k].same_bits)
      EXPECT_TRUE(equal(got, want)) << cases[k].what;
    else
      EXPECT_TRUE(allclose(got, want, 1e-5, 1e-6)) << cases[k].what;
    EXPECT_GE(built.nets[k].arena_bytes, built.nets[k].lower_bound) << cases[k].what;
  }
}

TEST(EdgeC99, NamesAllThatHasNoForm) {
  init();
  const edge::EdgePort in{"x", Spec(DType::f32, Shape{4, 4})};
  const auto forward = [](std::span<const Tensor> x) {
    return std::vector{sort(x[0]).values, linalg::inv(x[0]), linalg::inv(x[0] + 1)};
  };
  try {
    edge::write_c99(forward, {&in, 1}, {});
    FAIL() << "sort and inv were written";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("2 x inv (float32), 1 x sort (float32)"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace tandem
