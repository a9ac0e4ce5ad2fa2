// SPDX-License-Identifier: Apache-2.0
// to_string(Tensor) against PyTorch's own text (format_golden.txt, made by make_format_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tandem/base/print.h"
#include "tandem/tensor/strided.h"
#include "tandem/tensor/tensor.h"

namespace tandem {
namespace {

Tensor from_doubles(const std::vector<double>& values, const Shape& shape, DType dtype) {
  Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, dtype, cpu)));
  detail::convert_elements(values.data(), DType::f64, t.impl()->data, dtype, t.numel());
  return t;
}

std::string golden_path() {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/tensor/format_golden.txt";
}

DType dtype_named(const std::string& name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name == to_string(static_cast<DType>(i))) return static_cast<DType>(i);
  throw std::runtime_error("unknown dtype " + name);
}

TEST(Format, EqualsPyTorch) {
  std::ifstream in(golden_path());
  ASSERT_TRUE(in) << golden_path();
  int count = 0;
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream head(line);
    std::string word, dtype, shape_text, kind, number;
    head >> word >> dtype >> shape_text >> kind;
    ASSERT_EQ(word, "case");
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
    EXPECT_EQ(to_string(from_doubles(numbers, shape, dtype_named(dtype))), want) << line;
    ++count;
  }
  EXPECT_GT(count, 300);
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
