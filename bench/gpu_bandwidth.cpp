// SPDX-License-Identifier: Apache-2.0
// Bytes per second of kernels that memory bounds, at sizes that nets have, beside a large copy. A
// pass counts each array that it must read or write once, batch normalisation its operands twice.
#include <fmt/core.h>

#include <functional>
#include <vector>

#include "bench/gpu_bench.h"
#include "bench/gpu_seconds.h"
#include "tandem/tandem.h"

namespace tandem::bench {
namespace {

class Bandwidth {
 public:
  /// Not `real`: far slower devices get arrays of a hundredth.
  Bandwidth(Device device, bool real) : device_(device), real_(real) {}

  int64_t size(int64_t n) const { return real_ ? n : std::max<int64_t>(n / 128, 8); }

  void forward(const char* name, double bytes, const std::function<Tensor()>& f) const {
    const NoGradGuard no_grad;
    print(name, bytes, device_seconds(device_, real_ ? 20 : 2, [&] { (void)f(); }));
  }
  /// A layer of leaves and its derivative, the seconds of both less those of the first.
  void layer(const char* name, double forward_bytes, double backward_bytes,
             const std::vector<Tensor>& leaves, const std::function<Tensor()>& f) const {
    const Tensor gy = ones_like(f().detach());
    const int n = real_ ? 20 : 2;
    const double forward = device_seconds(device_, n, [&] { (void)f(); });
    const double both = device_seconds(device_, n, [&] {
      f().backward(gy);
      for (Tensor t : leaves) t.zero_grad();
    });
    print(name, forward_bytes, forward);
    print((std::string(name) + ", backward").c_str(), backward_bytes, both - forward);
  }

 private:
  static void print(const char* name, double bytes, double seconds) {
    fmt::print("{:<44}{:>10.3f} ms{:>9.0f} GB/s\n", name, 1e3 * seconds, 1e-9 * bytes / seconds);
  }
  Device device_;
  bool real_;
};

double bytes_of(const Tensor& t) {
  return static_cast<double>(t.numel()) * static_cast<double>(size_of(t.dtype()));
}

void elements(const Bandwidth& b) {
  {
    const Tensor x = ones({b.size(int64_t{1} << 29)});
    const double each = bytes_of(x);
    b.forward("copy, f32", 2 * each, [&] { return x.clone(); });
    b.forward("x + 1, f32", 2 * each, [&] { return x + 1.0; });
    b.forward("to bf16", 1.5 * each, [&] { return x.to(bfloat16); });
    b.forward("sum, f32", each, [&] { return x.sum(); });
  }
  const Tensor x = randn({b.size(16384), 3072}).to(bfloat16), y = x + 1.0;
  const Tensor bias = randn({3072}).to(bfloat16);
  const double each = bytes_of(x);
  b.forward("x + y, bf16", 3 * each, [&] { return x + y; });
  b.forward("x + bias, bf16", 2 * each, [&] { return x + bias; });
  b.forward("gelu, bf16", 2 * each, [&] { return gelu(x); });
  b.forward("sum of columns, bf16", each, [&] { return x.sum({0}); });
  b.forward("sum of rows, bf16", each, [&] { return x.sum({1}); });
  const Tensor square = randn({b.size(8192), b.size(8192)});
  b.forward("transposed copy, f32", 2 * bytes_of(square), [&] { return square.t().contiguous(); });
  const Tensor narrow = square.to(bfloat16);
  b.forward("transposed copy, bf16", 2 * bytes_of(narrow), [&] { return narrow.t().contiguous(); });
}

void rows(const Bandwidth& b) {
  for (const DType t : {bfloat16, float32}) {
    const char* type = t == bfloat16 ? "bf16" : "f32";
    const auto named = [&](const char* what) { return fmt::format("{}, {}", what, type); };
    const Tensor x = randn({b.size(16384), 1024}).to(t).requires_grad_();
    const Tensor w = ones({1024}).to(t).requires_grad_(),
                 bias = zeros({1024}).to(t).requires_grad_();
    const double each = bytes_of(x);
    b.layer(named("softmax of 1024").c_str(), 2 * each, 3 * each, {x},
            [&] { return softmax(x, 1); });
    b.layer(named("layer_norm of 1024").c_str(), 2 * each, 3 * each, {x, w, bias},
            [&] { return layer_norm(x, {1024}, w, bias); });
    b.layer(named("rms_norm of 1024").c_str(), 2 * each, 3 * each, {x, w},
            [&] { return rms_norm(x, {1024}, w); });
  }
  const Tensor logits = randn({b.size(8192), 50304}).to(bfloat16).requires_grad_();
  const Tensor labels = randint(0, 50304, {logits.size(0)});
  b.layer("cross_entropy of 50304, bf16", bytes_of(logits), 2 * bytes_of(logits), {logits},
          [&] { return cross_entropy(logits, labels); });
  const Tensor table = randn({50304, 768}).requires_grad_();
  const Tensor ids = randint(0, 50304, {b.size(16384)});
  const double read = static_cast<double>(ids.numel()) * 768 * 4;
  b.layer("embedding of 768, f32", 2 * read, bytes_of(table) + 2 * read, {table},
          [&] { return embedding(ids, table); });
}

void images(const Bandwidth& b) {
  for (const bool last : {true, false}) {
    const auto named = [&](const char* what) {
      return fmt::format("{}, bf16, {}", what, last ? "channels-last" : "row-major");
    };
    const auto image = [&](int64_t side) {
      const Tensor x = randn({b.size(128), 64, side, side}).to(bfloat16);
      const Tensor seen = last ? x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}) : x;
      return seen.detach().requires_grad_();
    };
    const Tensor x = image(56), large = image(112);
    const Tensor w = ones({64}).requires_grad_(), bias = zeros({64}).requires_grad_();
    b.layer(named("batch_norm").c_str(), 3 * bytes_of(x), 5 * bytes_of(x), {x, w, bias},
            [&] { return batch_norm_stats(x, w, bias).y; });
    // The places of maxima, i32, are read and written as well.
    b.layer(named("max_pool of 3 by 2").c_str(), 1.75 * bytes_of(large), 1.75 * bytes_of(large),
            {large}, [&] { return max_pool2d(large, {3}, {2}, {1}); });
  }
}

}  // namespace

int gpu_bandwidth(const std::string& device) {
  const Device d = device_named(device);
  const DeviceGuard there(d);
  const Bandwidth b(d, to_string(d).rfind("cuda", 0) == 0);
  elements(b);
  rows(b);
  images(b);
  return 0;
}

}  // namespace tandem::bench
