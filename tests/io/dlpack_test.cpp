// SPDX-License-Identifier: Apache-2.0
// DLPack in both directions without copies: who frees what and when, dtypes, strides, and what is
// rejected (and then stays the caller's). Also from_blob with strides and deleter.
#include "tandem/io/dlpack.h"

#include <thread>

#include "tandem/tensor/blob.h"
#include "tests/io/io_helper.h"

namespace tandem {
namespace {

using namespace tandem::io;

/// A producer of DLPack tensors that counts how often its deleter was called.
template <class Managed>
struct Producer {
  std::vector<float> data = std::vector<float>(64, 1.5f);
  std::vector<int64_t> shape{2, 3}, strides{3, 1};
  int deleted = 0;
  Managed managed{};
  Producer() {
    managed.dl_tensor = {.data = data.data(),
                         .device = {kDLCPU, 0},
                         .ndim = 2,
                         .dtype = {kDLFloat, 32, 1},
                         .shape = shape.data(),
                         .strides = strides.data(),
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* m) { ++static_cast<Producer*>(m->manager_ctx)->deleted; };
    if constexpr (requires { managed.version.major; }) managed.version = {1, 1};
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  }
};

template <class Managed>
void borrows() {
  Producer<Managed> p;
  p.managed.dl_tensor.byte_offset = 4;
  {
    Tensor x = from_dlpack(&p.managed);
    EXPECT_EQ(x.data<float>(), p.data.data() + 1);  // not copied
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    const Tensor y = x;
    x.mutable_data<float>()[0] = 9;  // copies first
    EXPECT_EQ(p.data[1], 1);
    EXPECT_EQ(p.deleted, 0);
    std::thread([z = y]() mutable { z = Tensor(); }).join();
    EXPECT_EQ(p.deleted, 0);
  }
  EXPECT_EQ(p.deleted, 1);
}
TEST(DLPack, BorrowsAndGivesBackOnce) {
  borrows<DLManagedTensor>();
  borrows<DLManagedTensorVersioned>();
}

TEST(DLPack, StridesAndNone) {
  Producer<DLManagedTensor> p;
  p.strides = {1, 2};
  {
    const Tensor x = from_dlpack(&p.managed);
    EXPECT_EQ(x.stride(1), 2);
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  }
  p.strides = {0, 1};  // a broadcast row
  EXPECT_EQ(from_dlpack(&p.managed).to_vector<float>(), (std::vector<float>{0, 1, 2, 0, 1, 2}));
  p.managed.dl_tensor.strides = nullptr;
  EXPECT_TRUE(from_dlpack(&p.managed).is_contiguous());
  p.managed.dl_tensor.ndim = 0;
  p.managed.dl_tensor.shape = nullptr;
  EXPECT_EQ(from_dlpack(&p.managed).dim(), 0);
  EXPECT_EQ(p.deleted, 4);
}

TEST(DLPack, EmptyAndUnwalkedStrides) {
  Producer<DLManagedTensor> p;
  p.shape = {0, 3};
  p.strides = {-7, INT64_MAX};
  p.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(from_dlpack(&p.managed).numel(), 0);
  p.shape = {1, 3};
  p.strides = {-7, 1};
  p.managed.dl_tensor.data = p.data.data();
  EXPECT_EQ(from_dlpack(&p.managed).numel(), 3);
}

template <class Change>
std::string refused(Change change) {
  Producer<DLManagedTensorVersioned> p;
  change(p);
  const std::string text = error_of([&] { from_dlpack(&p.managed); });
  EXPECT_EQ(p.deleted, 0) << text;  // it stays the caller's
  return text;
}
TEST(DLPack, Refusals) {
  using P = Producer<DLManagedTensorVersioned>;
  EXPECT_EQ(refused([](P& p) {
              p.managed.dl_tensor.device = {kDLCUDA, 1};
            }),
            "Device: from_dlpack: the tensor is on cuda:1, expected cpu. Copy it to the CPU "
            "before exporting.");
  EXPECT_TRUE(refused([](P& p) { p.managed.dl_tensor.device = {8, 0}; }).starts_with("Device: "));
  EXPECT_EQ(refused([](P& p) {
              p.managed.dl_tensor.dtype = {5, 64, 1};
            }),
            "DType: from_dlpack: elements of complex64 are not supported. Convert them before "
            "exporting.");
  for (const DLDataType t : {DLDataType{kDLUInt, 32, 1}, DLDataType{kDLFloat, 8, 1},
                             DLDataType{kDLFloat, 32, 4}, DLDataType{200, 1, 1}})
    EXPECT_TRUE(refused([&](P& p) { p.managed.dl_tensor.dtype = t; }).starts_with("DType: "));
  EXPECT_EQ(
      refused([](P& p) { p.strides[0] = -3; }),
      "Shape: from_dlpack: dimension 0 has the stride -3, negative ones are not supported. Copy "
      "the array on the other side.");
  EXPECT_TRUE(refused([](P& p) { p.managed.dl_tensor.ndim = 9; }).starts_with("Shape: "));
  EXPECT_TRUE(refused([](P& p) { p.managed.dl_tensor.ndim = -1; }).starts_with("Shape: "));
  EXPECT_TRUE(refused([](P& p) { p.shape[1] = -1; }).starts_with("Shape: "));
  EXPECT_TRUE(refused([](P& p) { p.shape[0] = int64_t{1} << 62; }).starts_with("Shape: "));
  EXPECT_TRUE(refused([](P& p) {
                p.shape = {int64_t{1} << 40, int64_t{1} << 40};
                p.managed.dl_tensor.strides = nullptr;
              }).starts_with("Value: "));
  EXPECT_TRUE(refused([](P& p) { p.strides[0] = int64_t{1} << 60; }).starts_with("Shape: "));
  EXPECT_TRUE(refused([](P& p) { p.managed.dl_tensor.data = nullptr; }).starts_with("Value: "));
  EXPECT_TRUE(refused([](P& p) { p.managed.dl_tensor.shape = nullptr; }).starts_with("Value: "));
  EXPECT_TRUE(refused([](P& p) { p.managed.dl_tensor.byte_offset = 2; }).starts_with("Value: "));
  EXPECT_TRUE(refused([](P& p) { p.managed.version = {2, 0}; }).starts_with("Unsupported: "));
  EXPECT_TRUE(refused([](P& p) {
                p.managed.dl_tensor.dtype = {kDLBool, 8, 1};
                reinterpret_cast<uint8_t*>(p.data.data())[5] = 3;
              }).starts_with("Value: "));
  EXPECT_TRUE(
      error_of([] { from_dlpack(static_cast<DLManagedTensor*>(nullptr)); }).starts_with("Value: "));
}

TEST(DLPack, ExportsWithoutCopy) {
  Tensor x = counting({2, 3}, float32);
  DLManagedTensorVersioned* m = to_dlpack_versioned(x);
  EXPECT_EQ(m->dl_tensor.data, x.data<float>());
  EXPECT_EQ(m->version.major, 1u);
  EXPECT_EQ(m->flags, kDLPackReadOnly);
  EXPECT_EQ(m->dl_tensor.ndim, 2);
  EXPECT_EQ(m->dl_tensor.shape[1], 3);
  EXPECT_EQ(m->dl_tensor.strides[0], 3);
  const auto* data = static_cast<const float*>(m->dl_tensor.data);
  x = Tensor();  // the export keeps the value
  EXPECT_EQ(data[5], 5);
  m->deleter(m);
}

TEST(DLPack, WritableWhenGivenAwayOrCopied) {
  Tensor x = counting({2, 3}, float32);
  DLManagedTensorVersioned* m = to_dlpack_versioned(x, {.copy = true});
  EXPECT_EQ(m->flags, kDLPackIsCopied);
  EXPECT_NE(m->dl_tensor.data, x.data<float>());
  m->deleter(m);
  const float* data = x.data<float>();
  m = to_dlpack_versioned(std::move(x));
  EXPECT_EQ(m->flags, 0u);
  EXPECT_EQ(m->dl_tensor.data, data);
  m->deleter(m);
}

TEST(DLPack, RoundTripsEveryDtypeAndStrides) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    const Tensor x =
        t == DType::b8 ? make_tensor({1, 0, 0, 1, 1, 0}, {2, 3}, t) : counting({2, 3}, t);
    const Tensor y = from_dlpack(to_dlpack(x)), z = from_dlpack(to_dlpack_versioned(x));
    EXPECT_EQ(y.dtype(), t);
    EXPECT_EQ(y.impl()->data, x.impl()->data);
    EXPECT_EQ(y.to_vector<double>(), x.to_vector<double>());
    EXPECT_EQ(z.to_vector<double>(), x.to_vector<double>());
  }
  Strides s;
  s[0] = 1;
  s[1] = 3;
  const Tensor dense = counting({2, 3}, float32);
  const Tensor view(Ref<detail::TensorImpl>::adopt(
      detail::new_view(*dense.impl(), {3, 2}, s, dense.impl()->data, float32)));
  const Tensor back = from_dlpack(to_dlpack(view));
  EXPECT_EQ(back.stride(0), 1);
  EXPECT_EQ(back.to_vector<float>(), view.to_vector<float>());
}

// Another library's copy of the same structs.
namespace other {
struct Tensor_ {
  void* data;
  struct {
    int device_type;
    int32_t device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct Managed {
  Tensor_ dl_tensor;
  void* manager_ctx;
  void (*deleter)(Managed* self);
};
}  // namespace other

TEST(DLPack, TakesAnotherHeadersStructs) {
  float data[] = {1, 2, 3};
  int64_t shape[] = {3};
  int deleted = 0;
  other::Managed m{};
  m.dl_tensor.data = data;
  m.dl_tensor.device.device_type = 1;
  m.dl_tensor.ndim = 1;
  m.dl_tensor.dtype.code = 2;
  m.dl_tensor.dtype.bits = 32;
  m.dl_tensor.dtype.lanes = 1;
  m.dl_tensor.shape = shape;
  m.manager_ctx = &deleted;
  m.deleter = [](other::Managed* self) { ++*static_cast<int*>(self->manager_ctx); };
  EXPECT_EQ(from_dlpack(&m).to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(deleted, 1);
}

TEST(DLPack, ExportRefuses) {
  EXPECT_TRUE(error_of([] { to_dlpack(Tensor()); }).starts_with("Value: "));
  Tensor g = counting({2}, float32);
  g.impl()->flags |= detail::kRequiresGrad;
  EXPECT_EQ(error_of([&] { to_dlpack(g); }),
            "Value: to_dlpack: the tensor is part of a gradient, which would be lost. Give "
            "x.detach().");
  g.impl()->flags &= static_cast<uint8_t>(~detail::kRequiresGrad);
  const Tensor traced(
      Ref<detail::TensorImpl>::adopt(detail::new_symbolic({Dim::symbol("n")}, float32, cpu)));
  EXPECT_TRUE(error_of([&] { to_dlpack(traced); }).starts_with("Unsupported: "));
}

TEST(FromBlob, StridesAndDeleter) {
  std::vector<double> memory(12);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<double>(i);
  const Tensor columns = from_blob(memory.data(), {3, 2}, {1, 3}, float64);
  EXPECT_EQ(columns.to_vector<double>(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(from_blob(memory.data(), {4}, {0}, float64).to_vector<double>(),
            std::vector<double>(4, 0));
  float one = 2;
  EXPECT_EQ(from_blob(&one, {1}).dtype(), float32);
  int freed = 0;
  void* seen = nullptr;
  auto free_it = [&](void* p) {
    ++freed;
    seen = p;
  };
  {
    Tensor x = from_blob(memory.data(), {2, 3}, free_it, float64);
    const Tensor y = from_blob(memory.data(), {2, 3}, {6, 2}, free_it, float64);
    EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 2, 4, 6, 8, 10}));
    x.mutable_data<double>()[0] = 5;  // now x has memory of its own
    EXPECT_EQ(freed, 1);
    EXPECT_EQ(memory[0], 0);
  }
  EXPECT_EQ(freed, 2);
  EXPECT_EQ(seen, memory.data());
}

TEST(FromBlob, Refusals) {
  float memory[8] = {};
  bool freed = false;
  auto free_it = [&](void*) { freed = true; };
  EXPECT_EQ(error_of([&] {
              from_blob(memory, {2, 2}, {2}, free_it);
            }),
            "Shape: from_blob: 1 strides were given for shape [2, 2].");
  EXPECT_TRUE(error_of([&] { from_blob(memory, {2}, {-1}); }).starts_with("Shape: "));
  EXPECT_TRUE(error_of([&] { from_blob(memory, {-2}, {1}); }).starts_with("Shape: "));
  EXPECT_TRUE(error_of([&] {
                from_blob(memory, {4, 4}, {int64_t{1} << 61, int64_t{1} << 61});
              }).starts_with("Memory: "));
  EXPECT_TRUE(error_of([&] {
                from_blob(static_cast<void*>(nullptr), {2}, free_it);
              }).starts_with("Value: "));
  EXPECT_TRUE(error_of([&] {
                from_blob(reinterpret_cast<char*>(memory) + 1, {1}, free_it);
              }).starts_with("Value: "));
  EXPECT_FALSE(freed);
}

}  // namespace
}  // namespace tandem
