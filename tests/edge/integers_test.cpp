// SPDX-License-Identifier: Apache-2.0
// Quantised nets as C: between the codes of the input and those of the output there is no float,
// the codes are those of eager code or one beside them, and every processor gives the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>

#include "tandem/base/files/private_folder.h"
#include "tandem/edge/edge.h"
#include "tandem/init.h"
#include "tests/edge/code_layers.h"

namespace tandem {
namespace {

struct CodeCase {
  const char* what;
  Shape input;
  double scale;  ///< of the result's codes, and their zero point
  int zero;
  std::function<Tensor(const Tensor&)> net;  ///< from numbers that codes stand for
};

constexpr double kIn = 0.03;  ///< the step of every net's input, zero point 120

CodeCase conv_case(const char* what, const Shape& weight, const ConvAttrs& a, double out) {
  const CodeWeight w(weight, 0, kIn);
  return {what, {2, weight[1].value() * a.groups, 7, 6}, out, 0, [=](const Tensor& x) {
            return relu(conv(x, w.weight(), w.column(), a));
          }};
}
// A residual block, a mean over the plane and a classifier: the whole way in one function.
CodeCase small_net() {
  const CodeWeight first({4, 3, 3, 3}, 0, kIn), depth({4, 1, 3, 3}, 0, 0.5), last({5, 4}, 0, 0.2);
  return {"net", {1, 3, 8, 8}, 0.4, 131, [=](const Tensor& x) {
            const Tensor a = rounded(
                clamp(conv(x, first.weight(), first.column(), conv_attrs(2, 1, 1)), 0, 90), 0.5, 0);
            const Tensor b =
                rounded(conv(a, depth.weight(), depth.column(), conv_attrs(1, 1, 4)), 1.1, 100);
            const Tensor h = rounded(mean(rounded(a + b, 1.3, 90), {2, 3}), 0.2, 128);
            return linear(h, last.weight(), last.column());
          }};
}

std::vector<CodeCase> code_cases() {
  const CodeWeight dense({9, 12}, 0, kIn), turned({12, 9}, 1, kIn);
  const auto other = [](const Tensor& x) { return rounded(x, 0.07, 100); };
  return {
      conv_case("conv", {5, 3, 3, 3}, conv_attrs(1, 1, 1), 0.6),
      conv_case("grouped", {6, 2, 3, 3}, conv_attrs(2, 1, 2), 0.5),
      conv_case("depthwise", {4, 1, 3, 3}, conv_attrs(1, 1, 4), 0.3),
      conv_case("1x1", {6, 4, 1, 1}, conv_attrs(1, 0, 1), 0.2),
      {"linear",
       {3, 12},
       0.4,
       128,
       [=](const Tensor& x) { return linear(x, dense.weight(), dense.column()); }},
      {"matmul",
       {3, 12},
       0.03,
       5,
       [=](const Tensor& x) { return relu6(matmul(x, turned.weight()) + turned.column()); }},
      {"add", {2, 3, 4}, 0.1, 128, [=](const Tensor& x) { return x + other(x); }},
      {"cat",
       {2, 3, 4},
       0.05,
       128,
       [=](const Tensor& x) {
         return cat({x, other(x)}, 1);
       }},
      {"places",
       {2, 3, 4},
       0.05,
       128,
       [=](const Tensor& x) {
         return narrow(x, 1, 1, 2).transpose(1, 2).reshape({2, 8});
       }},
      {"max pool",
       {1, 2, 6, 6},
       0.05,
       90,
       [=](const Tensor& x) { return max_pool2d(rounded(x, 0.05, 90), 3, 2, 1); }},
      {"mean",
       {1, 3, 6, 5},
       0.02,
       110,
       [=](const Tensor& x) {
         return adaptive_avg_pool2d(x, {1, 1});
       }},
      {"windows", {1, 3, 7, 6}, 0.02, 110, [=](const Tensor& x) { return avg_pool2d(x, 3, 2, 1); }},
      {"padding",
       {1, 2, 3, 4},
       0.05,
       128,
       [=](const Tensor& x) {
         return pad(x, {1, 0, 2, 1}, "constant", 0.7);
       }},
      small_net(),
  };
}

struct CodeNet {
  edge::EdgeSource source;
  Tensor x, want;  ///< codes
};

// From codes to codes.
CodeNet code_net(const CodeCase& c, const std::string& name) {
  const auto forward = [&](std::span<const Tensor> x) {
    const Tensor y = c.net(dequantize_linear(x[0], step(kIn), full({}, 120, DType::u8)));
    return std::vector{quantize_linear(y, step(c.scale), full({}, c.zero, DType::u8))};
  };
  const edge::EdgePort in{"x", Spec(DType::u8, c.input)};
  const Tensor x[] = {(rand(c.input) * 255).to(DType::u8)};
  return {edge::write_c99(forward, {&in, 1}, {}, {.name = name}), x[0], forward(x)[0].contiguous()};
}

std::string array_text(const char* name, const Tensor& t) {
  std::string s = fmt::format("static const uint8_t {}[{}] = {{", name, t.numel());
  for (const double v : t.contiguous().to_vector<double>()) s += fmt::format("{},", v);
  return s + "};\n";
}

// One program for all nets: prints a line of codes for each.
std::string program_text(const std::vector<CodeNet>& nets) {
  std::string head = "#include <stdio.h>\n", body;
  for (size_t k = 0; k < nets.size(); ++k) {
    head += fmt::format("#include \"net{}.h\"\n", k) +
            array_text(fmt::format("x{}", k).c_str(), nets[k].x);
    body += fmt::format(
        "  {{ uint8_t y[{1}]; net{0}_run(x{0}, y); for (int i = 0; i < {1}; ++i) printf(\"%d "
        "\", y[i]); }}\n  puts(\"\");\n",
        k, nets[k].want.numel());
  }
  return head + "int main(void) {\n" + body + "  return 0;\n}\n";
}

bool has_tool(const std::string& name) {
  return std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0;
}

// What the program prints, compiled by `compiler` and run by `runner`.
std::string printed(const std::string& folder, const std::string& compiler,
                    const std::string& runner) {
  const std::string line = fmt::format(
      "cd {} && {} -std=c99 -Wall -Wextra -Werror -pedantic -O1 main.c net*.c -o run {} && {} "
      "./run > printed.txt",
      folder, compiler, runner.empty() ? "" : "-static", runner);
  return std::system(line.c_str()) == 0 ? read_file(folder + "/printed.txt") : "";
}

struct Processor {
  const char *compiler, *runner;
};
constexpr Processor kProcessors[] = {{"i686-linux-gnu-gcc", "qemu-i386"},
                                     {"aarch64-linux-gnu-gcc", "qemu-aarch64"},
                                     {"arm-linux-gnueabihf-gcc", "qemu-arm"},
                                     {"riscv64-linux-gnu-gcc", "qemu-riscv64"},
                                     {"s390x-linux-gnu-gcc", "qemu-s390x"}};

TEST(EdgeIntegers, EveryProcessorGivesTheCodesOfTheNet) {
  init();
  manual_seed(11);
  NoGradGuard no_grad;
  const std::string folder = PrivateFolder::temporary("codes").path();
  std::vector<CodeNet> nets;
  const std::vector<CodeCase> cases = code_cases();
  for (size_t k = 0; k < cases.size(); ++k) {
    const std::string name = fmt::format("net{}", k);
    nets.push_back(code_net(cases[k], name));
    write_file(folder + "/" + name + ".c", nets[k].source.source);
    write_file(folder + "/" + name + ".h", nets[k].source.header);
    for (const char* word : {"float", "double"})
      EXPECT_EQ(nets[k].source.source.find(word), std::string::npos) << cases[k].what;
  }
  write_file(folder + "/main.c", program_text(nets));
  const std::string native = printed(folder, "cc", "");
  std::istringstream lines(native);
  for (size_t k = 0; k < nets.size(); ++k) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << "the C compiler refused the sources";
    std::istringstream numbers(line);
    int apart = 0, same = 0, got = 0;
    for (const double want : nets[k].want.to_vector<double>()) {
      numbers >> got;
      apart = std::max(apart, std::abs(got - static_cast<int>(want)));
      same += got == static_cast<int>(want);
    }
    EXPECT_LE(apart, 1) << cases[k].what;
    EXPECT_GE(same * 10, nets[k].want.numel() * 9) << cases[k].what;
  }
  std::string missing;
  for (const Processor& p : kProcessors) {
    if (has_tool(p.compiler) && has_tool(p.runner))
      EXPECT_TRUE(printed(folder, p.compiler, p.runner) == native) << p.compiler;
    else
      missing += fmt::format(" {} {}", p.compiler, p.runner);
  }
  std::filesystem::remove_all(folder);
  if (!missing.empty()) GTEST_SKIP() << "compared natively alone; not found:" << missing;
}

// Activations of 16 bits stay in floats. All numbers are small multiples of powers of two, whose
// sums are exact: C gives the codes of eager code, bounds and padding among them.
TEST(EdgeIntegers, CodesOf16BitsAreComputedInFloats) {
  init();
  manual_seed(12);
  NoGradGuard no_grad;
  const Buffer w((rand({4, 3, 3, 3}) * 254 - 127).to(DType::i8));
  const auto filtered = [=](const Tensor& x) {
    return conv(x, dequantize_linear(w, step(1.0 / 64)), {}, conv_attrs(1, 1, 1));
  };
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> nets[] = {
      {"relu", [=](const Tensor& x) { return relu(filtered(x)); }},
      {"clamp", [=](const Tensor& x) { return clamp(filtered(x), -20.25, 31.5); }},
      {"relu6", [=](const Tensor& x) { return relu6(filtered(x)); }},
      {"pad",
       [=](const Tensor& x) {
         return pad(filtered(x), {1, 0, 0, 2}, "constant", -9.5);
       }},
      {"max", [=](const Tensor& x) { return max_pool2d(filtered(x), 2); }},
  };
  const Shape shape{1, 3, 6, 5};
  const Tensor x[] = {(rand(shape) * 1000 - 500).to(DType::i16)};
  const std::string folder = PrivateFolder::temporary("codes16").path();
  for (const auto& [what, net] : nets) {
    const auto forward = [&net = net](std::span<const Tensor> in) {
      const Tensor zero = full({}, 0, DType::i16);
      const Tensor y = net(dequantize_linear(in[0], step(1.0 / 256), zero));
      return std::vector{quantize_linear(y, step(1.0 / 32), zero, 1, DType::i16)};
    };
    const Tensor want = forward(x)[0].contiguous();
    const edge::EdgePort in{"x", Spec(DType::i16, shape)};
    const edge::EdgeSource c = edge::write_c99(forward, {&in, 1}, {}, {.name = "net"});
    write_file(folder + "/net.c", c.source);
    write_file(folder + "/net.h", c.header);
    std::string numbers;
    for (const double v : x[0].to_vector<double>()) numbers += fmt::format("{},", v);
    write_file(folder + "/main.c",
               fmt::format("#include <stdio.h>\n#include \"net.h\"\nstatic const int16_t x[] = "
                           "{{{0}}};\nint main(void) {{\n  int16_t y[{1}];\n  net_run(x, y);\n"
                           "  for (int i = 0; i < {1}; ++i) printf(\"%d \", y[i]);\n  return "
                           "0;\n}}\n",
                           numbers, want.numel()));
    std::string expected;
    for (const double v : want.to_vector<double>()) expected += fmt::format("{} ", v);
    EXPECT_EQ(printed(folder, "cc -ffp-contract=off", ""), expected) << what;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem
