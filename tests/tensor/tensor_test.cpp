// SPDX-License-Identifier: Apache-2.0
// The handle and its block: lifetimes of views and storages, reading, writing, and the messages.
#include "tandem/tensor/tensor.h"

#include <gtest/gtest.h>

#include <thread>

#include "tandem/tensor/allocator.h"
#include "tandem/tensor/strided.h"
#include "tests/support/errors.h"

namespace tandem {
namespace {

using detail::TensorImpl;
using Impl = Ref<TensorImpl>;

Tensor filled(const std::vector<double>& values, const Shape& shape, DType dtype = float32) {
  Tensor t(Impl::adopt(detail::new_tensor(shape, dtype, cpu)));
  detail::convert_elements(values.data(), DType::f64, t.impl()->data, dtype, t.numel());
  return t;
}
Tensor transposed(const Tensor& x) {
  Strides s;
  s[0] = x.stride(1);
  s[1] = x.stride(0);
  return Tensor(Impl::adopt(
      detail::new_view(*x.impl(), {x.shape(1), x.shape(0)}, s, x.impl()->data, x.dtype())));
}
Tensor traced(const Shape& shape) {
  return Tensor(Impl::adopt(detail::new_symbolic(shape, float32, cpu)));
}

// Call and here() stand in one line outside a macro: inside one, compilers count lines differently.
std::string here(int line = __builtin_LINE()) {
  return std::string(" At ") + __FILE__ + ":" + std::to_string(line);
}

TEST(Tensor, WhatItIs) {
  const Tensor x = filled({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_TRUE(x.defined());
  EXPECT_EQ(x.dim(), 2);
  EXPECT_EQ(x.size(-1), 3);
  EXPECT_EQ(x.shape(0), Dim(2));
  EXPECT_EQ(x.stride(0), 3);
  EXPECT_EQ(x.numel(), 6);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_FALSE(x.is_symbolic());
  EXPECT_TRUE(x.is_floating_point());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data<float>()) % 64, 0u);
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, ReadsWithConversion) {
  const Tensor x = filled({1.5, -2, 3}, {3});
  EXPECT_EQ(x.to_vector<int32_t>(), (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{1.5, -2, 3}));
  EXPECT_EQ(transposed(filled({1, 2, 3, 4, 5, 6}, {2, 3})).to_vector<int64_t>(),
            (std::vector<int64_t>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(filled({7.9}, {1, 1}).item<int>(), 7);
  EXPECT_EQ(filled({2.5}, {}, bfloat16).item<float>(), 2.5f);
  EXPECT_TRUE(bool(filled({0.5}, {1})));
  EXPECT_FALSE(bool(filled({0}, {}, int64)));
  EXPECT_TRUE(filled({}, {0, 3}).to_vector<float>().empty());
}

TEST(Tensor, WritingNeverChangesWhatOthersHold) {
  Tensor x = filled({1, 2, 3}, {3});
  const float* first = x.data<float>();
  EXPECT_EQ(x.mutable_data<float>(), first) << "nobody else holds it: in place";
  Tensor y = x;
  y.mutable_data<float>()[0] = 9;
  EXPECT_EQ(x.data<float>()[0], 1);
  EXPECT_EQ(y.data<float>()[0], 9);
  // A view holds the storage, not the handle.
  Tensor base = filled({1, 2, 3, 4}, {2, 2});
  const Tensor view = transposed(base);
  base.mutable_data<float>()[1] = 9;
  EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{1, 3, 2, 4}));
  // Writing through a strided handle makes it row-major.
  Tensor t = transposed(filled({1, 2, 3, 4}, {2, 2}));
  EXPECT_FALSE(t.is_contiguous());
  t.mutable_data<float>()[1] = 7;
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{1, 7, 2, 4}));
}

TEST(Tensor, FromBlobIsNeverWritten) {
  const float memory[] = {1, 2, 3, 4};
  Tensor x = from_blob(memory, {2, 2}, float32);
  EXPECT_EQ(x.data<float>(), memory);
  x.mutable_data<float>()[0] = 9;
  EXPECT_NE(x.data<float>(), memory);
  EXPECT_EQ(memory[0], 1);
  EXPECT_EQ(from_blob(nullptr, {0}, int64).numel(), 0);
}

TEST(Tensor, AViewOutlivesItsBase) {
  for (const int64_t n : {4, 100'000}) {  // data inside the block, data of its own
    std::vector<double> values(static_cast<size_t>(n * 2));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 1000);
    Tensor view;
    {
      const Tensor base = filled(values, {n, 2});
      view = transposed(base);
      EXPECT_EQ(view.impl()->storage, base.impl()->storage);
      EXPECT_FALSE(base.impl()->donatable());
    }
    EXPECT_TRUE(view.impl()->donatable()) << "the last that shows these bytes";
    const Tensor second = transposed(view);
    view = Tensor();
    EXPECT_EQ(second.to_vector<double>(), values);
  }
}

TEST(Tensor, ExternalMemoryIsReturnedOnce) {
  static int freed = 0;
  float memory[2] = {1, 2};
  int owner = 5;
  {
    Tensor x(Impl::adopt(detail::new_external(
        {2}, float32, memory, /*writable=*/true,
        [](detail::Storage* s) { freed += *static_cast<int*>(s->owner); }, &owner)));
    const Tensor copy = x;
    const Tensor view(
        Impl::adopt(detail::new_view(*x.impl(), {1}, x.impl()->strides, memory, float32)));
    x = Tensor();
    EXPECT_EQ(freed, 0);
    EXPECT_EQ(view.item<float>(), 1);
  }
  EXPECT_EQ(freed, 5);
}

TEST(Tensor, TheNodeIsDroppedWithTheTensor) {
  static int destroyed = 0;
  auto* node = new detail::NodeBase;
  node->destroy = [](detail::NodeBase* n) {
    ++destroyed;
    delete n;
  };
  Tensor x = filled({1}, {1});
  x.impl()->node = node;
  Tensor y = x;
  x = Tensor();
  EXPECT_EQ(destroyed, 0);
  y = Tensor();
  EXPECT_EQ(destroyed, 1);
}

TEST(Tensor, ContiguousIgnoresSizesOneAndZero) {
  const Tensor x = filled({1, 2, 3, 4, 5, 6}, {2, 3});
  auto view = [&](const Shape& shape, std::initializer_list<int64_t> strides) {
    Strides s;
    int i = 0;
    for (const int64_t v : strides) s[i++] = v;
    return Tensor(Impl::adopt(detail::new_view(*x.impl(), shape, s, x.impl()->data, float32)));
  };
  EXPECT_TRUE(view({2, 1, 3}, {3, 77, 1}).is_contiguous());
  EXPECT_TRUE(view({1, 1}, {5, 9}).is_contiguous());
  EXPECT_TRUE(view({0, 3}, {1, 7}).is_contiguous());
  EXPECT_TRUE(view({}, {}).is_contiguous());
  EXPECT_FALSE(view({3, 2}, {1, 3}).is_contiguous());
  EXPECT_FALSE(view({2, 3}, {0, 1}).is_contiguous());
  EXPECT_FALSE(view({2}, {2}).is_contiguous());
}

TEST(Tensor, StridedAllocationHasRoomForItsLayout) {
  // Channels-last: [n, c, h, w] with c innermost.
  Strides s;
  s[0] = 24;
  s[1] = 1;
  s[2] = 8;
  s[3] = 2;
  const Tensor x(Impl::adopt(detail::new_tensor({2, 2, 3, 4}, float32, cpu, &s)));
  EXPECT_EQ(x.impl()->storage->nbytes, 48 * sizeof(float));
  EXPECT_FALSE(x.is_contiguous());
}

TEST(Tensor, BlocksComeAndGoAcrossThreads) {
  const int64_t before = allocator_stats().in_use;
  std::vector<Tensor> made(2000);
  std::thread maker([&] {
    for (size_t i = 0; i < made.size(); ++i) made[i] = filled({static_cast<double>(i)}, {1});
  });
  maker.join();
  for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i].item<int64_t>(), int64_t(i));
  made.clear();
  EXPECT_LE(allocator_stats().in_use - before, int64_t{2} << 20);
}

TEST(TensorMustFail, Undefined) {
  const std::string want =
      "Value: this Tensor is empty: it was never assigned, or it was moved "
      "from. Ask defined() first, or give it a value.";
  EXPECT_EQ(error_of([] { Tensor().dim(); }), want);
  EXPECT_EQ(error_of([] { Tensor().item<float>(); }), want);
  Tensor x = filled({1}, {1});
  const Tensor y = std::move(x);
  EXPECT_EQ(error_of([&] { x.numel(); }), want);
}

TEST(TensorMustFail, Reading) {
  const Tensor x = filled({1, 2}, {2});
  std::string got = error_of([&] { x.item<float>(); }), place = here();
  EXPECT_EQ(got, "Shape: item: expected a tensor of one element, got shape [2]." + place +
                     ". Reduce it first, or read all elements with to_vector<T>().");
  got = error_of([&] { x.data<int64_t>(); }), place = here();
  EXPECT_EQ(got, "DType: data: expected int64 elements, the tensor holds float32." + place +
                     ". Convert with to(int64), or ask for float32.");
  EXPECT_EQ(error_of([&] { (void)bool(x); }),
            "Shape: bool: the truth of a tensor of shape [2] is ambiguous. Use any() or all().");
  got = error_of([&] { x.size(1); }), place = here();
  EXPECT_EQ(got,
            "Index: size: dimension 1 is out of range: a tensor of 1 dimension takes -1 to 0." +
                place + ".");
  EXPECT_EQ(error_of([&] { filled({1}, {}).stride(0); }),
            "Index: dimension 0 was asked, but the tensor is a scalar (0 dimensions).");
}

TEST(TensorMustFail, InATrace) {
  Tensor x = traced({Dim::symbol("n"), 2});
  const std::string tail = ". Use where() or cond(), or read it outside.";
  const std::string text = ": a value inside a trace cannot be read.";
  std::string got = error_of([&] { x.item<float>(); }), place = here();
  EXPECT_EQ(got, "Unsupported: item" + text + place + tail);
  got = error_of([&] { x.data<float>(); }), place = here();
  EXPECT_EQ(got, "Unsupported: data" + text + place + tail);
  got = error_of([&] { x.mutable_data<float>(); }), place = here();
  EXPECT_EQ(got, "Unsupported: data" + text + place + tail);
  got = error_of([&] { traced({1}).to_vector<float>(); }), place = here();
  EXPECT_EQ(got, "Unsupported: to_vector" + text + place + tail);
  EXPECT_EQ(error_of([&] { (void)bool(traced({1})); }),
            "Unsupported: bool" + text + tail.substr(1));
  EXPECT_EQ(error_of([&] { x.size(0); }),
            "Shape: the size n is not a number inside a trace. Use shape(d), which gives a Dim to "
            "compute with.");
  EXPECT_EQ(error_of([&] { x.numel(); }),
            "Shape: the number of elements of shape [n, 2] is not known inside a trace. Use "
            "shape().numel(), which gives a Dim.");
  EXPECT_EQ(error_of([&] { x.stride(0); }), "Shape: a tensor of shape [n, 2] has no strides yet.");
  EXPECT_EQ(traced({2, 3}).numel(), 6) << "numbers stay readable";
  EXPECT_EQ(traced({2, 3}).stride(0), 3);
}

TEST(TensorMustFail, Writing) {
  Tensor x = filled({1}, {1});
  x.impl()->flags |= detail::kRequiresGrad;
  const std::string got = error_of([&] { x.mutable_data<float>(); }), place = here();
  EXPECT_EQ(got, "Value: mutable_data: a tensor that is part of a gradient cannot be written to." +
                     place + ". Write to detach(), or write before requires_grad_().");
}

TEST(TensorMustFail, Making) {
  auto make = [](const Shape& shape, Device device = cpu) {
    return error_of([&] { Tensor(Impl::adopt(detail::new_tensor(shape, float32, device))); });
  };
  EXPECT_EQ(make({2, -1}),
            "Shape: a tensor cannot have the shape [2, -1]: sizes are not negative.");
  EXPECT_EQ(make({Dim::symbol("n")}),
            "Shape: the size n is not a number inside a trace. Use shape(d), which gives a Dim to "
            "compute with.");
  EXPECT_EQ(make({int64_t{1} << 40, int64_t{1} << 40}),
            "Value: shape [1099511627776, 1099511627776] has more elements than 63 bits can "
            "count.");
  EXPECT_TRUE(make({int64_t{1} << 62}).starts_with("Memory: "));
  EXPECT_TRUE(make({int64_t{1} << 40})
                  .starts_with("Memory: an allocation of 4096.0 GB is more "
                               "than this machine has: "));
  const std::string no_gpu = make({1}, Device{DeviceKind::cuda, 15});
  EXPECT_TRUE(no_gpu.starts_with("Unsupported: ") && has(no_gpu, "cuda:15")) << no_gpu;
  EXPECT_EQ(error_of([] { from_blob(nullptr, {2}, float32); }),
            "Value: from_blob: the data pointer is null, shape [2].");
  EXPECT_EQ(error_of([] { from_blob(nullptr, {Dim::symbol("n")}, float32); }),
            "Shape: from_blob: the shape must be numbers, got [n].");
  EXPECT_EQ(make({int64_t{1} << 62, 0}), "no error") << "no elements, no bytes";
}

}  // namespace
}  // namespace tandem
