// SPDX-License-Identifier: Apache-2.0
// to_string(Tensor) against PyTorch's own text (format_golden.txt, made by make_format_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tandem/base/print.h"
#include "tandem/tensor/print_options.h"
#include "tandem/tensor/strided.h"
#include "tandem/tensor/tensor.h"

namespace tandem {
namespace {

Tensor from_doubles(const std::vector<double>& values, const Shape& shape, DType dtype) {
  Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, dtype, cpu)));
  detail::convert_elements(values.data(), DType::f64, t.impl()->data, dtype, t.numel());
  return t;
}

std::string golden_path(const char* name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/tensor/" + name;
}

DType dtype_named(const std::string& name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name == to_string(static_cast<DType>(i))) return static_cast<DType>(i);
  throw std::runtime_error("unknown dtype " + name);
}

PrintOptions options_of(std::istringstream& line) {
  PrintOptions o;
  std::string sci;
  line >> o.precision >> o.threshold >> o.edgeitems >> o.linewidth >> sci;
  if (sci != "None") o.sci_mode = sci == "True";
  return o;
}

/// Checks every case of a golden file and returns their number.
int check_golden(const char* name) {
  std::ifstream in(golden_path(name));
  EXPECT_TRUE(in) << golden_path(name);
  int count = 0;
  std::string line;
  PrintOptions options;
  while (std::getline(in, line)) {
    std::istringstream head(line);
    std::string word, dtype, shape_text, kind, number;
    head >> word;
    if (word == "options") {
      options = options_of(head);
      continue;
    }
    EXPECT_EQ(word, "case");
    head >> dtype >> shape_text >> kind;
    Shape shape;
    if (shape_text != "-") {
      std::istringstream dims(shape_text);
      for (std::string d; std::getline(dims, d, 'x');) shape.push_back(std::stoll(d));
    }
    std::vector<double> numbers;
    while (head >> number) numbers.push_back(std::strtod(number.c_str(), nullptr));
    if (kind == "ramp") {
      const std::vector<double> p = numbers;
      numbers.clear();
      for (int64_t i = 0; i < shape.numel().value(); ++i)
        numbers.push_back(static_cast<double>(i * int64_t(p[0]) % int64_t(p[1]) - int64_t(p[2])) *
                          p[3]);
    }
    std::string want, row;
    while (std::getline(in, row) && row != "end") want += (want.empty() ? "" : "\n") + row;
    // Blank lines between planes are part of the text.
    EXPECT_EQ(to_string(from_doubles(numbers, shape, dtype_named(dtype)), options), want)
        << line << " precision " << options.precision << " threshold " << options.threshold
        << " edgeitems " << options.edgeitems << " linewidth " << options.linewidth;
    ++count;
  }
  return count;
}

TEST(Format, EqualsPyTorch) { EXPECT_GT(check_golden("format_golden.txt"), 300); }
TEST(Format, EqualsPyTorchUnderOptions) {
  EXPECT_EQ(check_golden("format_options_golden.txt"), 130);
}

TEST(Format, SetPrintoptions) {
  const Tensor t = from_doubles({1.12345, 2, 3, 4, 5, 6, 7, 8}, {8}, float32);
  set_printoptions({.precision = 2, .threshold = 5, .edgeitems = 1});
  EXPECT_EQ(to_string(t), "tensor([1.12,  ..., 8.00])");
  EXPECT_EQ(fmt::format("{}", t), "tensor([1.12,  ..., 8.00])");
  set_printoptions({.sci_mode = true});  // the others stay
  EXPECT_EQ(to_string(t), "tensor([1.12e+00,  ..., 8.00e+00])");
  set_printoptions({.precision = 1});  // and this one goes back
  EXPECT_EQ(to_string(t), "tensor([1.1,  ..., 8.0])");
  set_printoptions({.profile = "short"});
  EXPECT_EQ(get_printoptions(), (PrintOptions{.precision = 2, .edgeitems = 2}));
  set_printoptions({.profile = "full"});
  EXPECT_EQ(get_printoptions().threshold, INT64_MAX);
  set_printoptions({.profile = "default"});
  EXPECT_EQ(get_printoptions(), PrintOptions());
  EXPECT_THROW(set_printoptions({.precision = -1}), Error);
  EXPECT_THROW(set_printoptions({.precision = 1, .linewidth = 0}), Error);
  EXPECT_THROW(set_printoptions({.profile = "long"}), Error);
  EXPECT_EQ(get_printoptions(), PrintOptions());
}

TEST(Format, StridedEqualsDense) {
  const Tensor t = from_doubles({1, 2, 3, 4, 5, 6}, {2, 3}, float32);
  Strides s;
  s[0] = 1;
  s[1] = 3;
  const Tensor view(Ref<detail::TensorImpl>::adopt(
      detail::new_view(*t.impl(), {3, 2}, s, t.impl()->data, float32)));
  EXPECT_EQ(to_string(view), "tensor([[1., 4.],\n        [2., 5.],\n        [3., 6.]])");
}

TEST(Format, NoValuesNeverThrows) {
  EXPECT_EQ(to_string(Tensor()), "tensor(undefined)");
  const Tensor traced(Ref<detail::TensorImpl>::adopt(
      detail::new_symbolic({Dim::symbol("batch"), 3}, float32, cpu)));
  EXPECT_EQ(to_string(traced), "tensor(traced, shape=[batch, 3], dtype=float32)");
}

TEST(Format, RequiresGradIsShown) {
  Tensor t = from_doubles({1, 2}, {2}, float32);
  t.impl()->flags |= detail::kRequiresGrad;
  EXPECT_EQ(to_string(t), "tensor([1., 2.], requires_grad=True)");
  t.impl()->flags &= ~detail::kRequiresGrad;
}

TEST(Print, WritesTensorsShapesAndFormats) {
  testing::internal::CaptureStdout();
  print("loss {} of {}\n", 1.5f, "two");
  print(Shape{2, 3});
  print(float32);
  print(from_doubles({1, 2}, {2}, int64));
  print("{} {} {} {}\n", from_doubles({1}, {1}, float32), Shape{4}, bfloat16, cpu);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "loss 1.5 of two\n[2, 3]\nfloat32\ntensor([1, 2])\ntensor([1.]) [4] bfloat16 cpu\n");
}

}  // namespace
}  // namespace tandem
