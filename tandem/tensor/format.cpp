// SPDX-License-Identifier: Apache-2.0
// to_string(Tensor): the text that torch prints with its default options (precision 4, 80 columns,
// three items at the edges beyond 1000 elements). Follows torch/_tensor_str.py step by step; the
// only difference is `dtype=float64` for `dtype=torch.float64`.
#include "tandem/tensor/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/tensor/strided.h"
#include "tandem/tensor/tensor.h"

namespace tandem {
namespace {

constexpr int64_t kEdge = 3;
constexpr int64_t kThreshold = 1000;
constexpr int kLineWidth = 80;

/// One tensor being printed; knows which elements are shown and how one looks.
class Printer {
 public:
  explicit Printer(const detail::TensorImpl& t)
      : t_(t), summarize_(t.numel > kThreshold), floating_(is_floating(t.dtype)) {
    measure();
  }
  std::string text() { return level(0, 0, 0); }

 private:
  bool cut(int64_t n) const { return summarize_ && n > 2 * kEdge; }

  /// Call f(index) for the shown indices of a dimension of size n, and gap() where some are left
  /// out.
  template <class F, class G>
  void for_shown(int64_t n, F f, G gap) const {
    if (!cut(n)) {
      for (int64_t i = 0; i < n; ++i) f(i);
      return;
    }
    for (int64_t i = 0; i < kEdge; ++i) f(i);
    gap();
    for (int64_t i = n - kEdge; i < n; ++i) f(i);
  }

  template <class F>
  void for_values(int dim, int64_t offset, F f) const {
    if (dim == t_.shape.rank()) {
      f(offset);
      return;
    }
    for_shown(
        t_.shape[dim].raw(),
        [&](int64_t i) { for_values(dim + 1, offset + i * t_.strides[dim], f); }, [] {});
  }

  double real(int64_t offset) const {
    double v;
    detail::convert_elements(at(offset), t_.dtype, &v, DType::f64, 1);
    return v;
  }
  const void* at(int64_t offset) const {
    return static_cast<const char*>(t_.data) + offset * static_cast<int64_t>(size_of(t_.dtype));
  }

  void measure() {
    if (!floating_) {
      for_values(0, 0, [&](int64_t o) { width_ = std::max(width_, bare(o).size()); });
      return;
    }
    double least = INFINITY, most = 0;
    auto for_normal = [&](auto f) {
      for_values(0, 0, [&](int64_t o) {
        const double v = real(o);
        if (std::isfinite(v) && v != 0) f(v);
      });
    };
    for_normal([&](double v) {
      least = std::min(least, std::fabs(v));
      most = std::max(most, std::fabs(v));
      if (v != std::ceil(v)) whole_ = false;
    });
    if (most == 0) return;
    scientific_ = most / least > 1000.0 || most > 1.0e8 || least < 1.0e-4;
    for_normal([&](double v) {
      const size_t n = scientific_ ? fmt::formatted_size("{:.4e}", v)
                       : whole_    ? fmt::formatted_size("{:.0f}", v) + 1
                                   : fmt::formatted_size("{:.4f}", v);
      width_ = std::max(width_, n);
    });
  }

  /// One element without padding.
  std::string bare(int64_t offset) const {
    if (floating_) {
      const double v = real(offset);
      if (std::isnan(v)) return "nan";
      if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
      if (scientific_) return fmt::format("{:.4e}", v);
      return whole_ ? fmt::format("{:.0f}.", v) : fmt::format("{:.4f}", v);
    }
    int64_t v;
    detail::convert_elements(at(offset), t_.dtype, &v, DType::i64, 1);
    if (t_.dtype == DType::b8) return v != 0 ? "True" : "False";
    return std::to_string(v);
  }
  std::string element(int64_t offset) const {
    const std::string s = bare(offset);
    return s.size() < width_ ? std::string(width_ - s.size(), ' ') + s : s;
  }

  std::string level(int dim, int64_t offset, int indent) const {
    const int left = t_.shape.rank() - dim;
    if (left == 0) return element(offset);
    if (left == 1) return row(dim, offset, indent);
    const std::string between = "," + std::string(static_cast<size_t>(left - 1), '\n') +
                                std::string(kPrefix + 1 + indent, ' ');
    std::string text = "[";
    bool first = true;
    auto join = [&](const std::string& part) {
      if (!first) text += between;
      first = false;
      text += part;
    };
    for_shown(
        t_.shape[dim].raw(),
        [&](int64_t i) { join(level(dim + 1, offset + i * t_.strides[dim], indent + 1)); },
        [&] { join("..."); });
    return text + "]";
  }

  std::string row(int dim, int64_t offset, int indent) const {
    const int full = kPrefix + indent;
    const int per_line = std::max(1, (kLineWidth - full) / static_cast<int>(width_ + 2));
    std::string text = "[";
    int n = 0;
    auto join = [&](const std::string& part) {
      if (n > 0) text += n % per_line == 0 ? ",\n" + std::string(full + 1, ' ') : ", ";
      ++n;
      text += part;
    };
    for_shown(
        t_.shape[dim].raw(), [&](int64_t i) { join(element(offset + i * t_.strides[dim])); },
        [&] { join(" ..."); });
    return text + "]";
  }

  static constexpr int kPrefix = 7;  // "tensor("
  const detail::TensorImpl& t_;
  bool summarize_, floating_;
  bool whole_ = true, scientific_ = false;
  size_t width_ = 1;
};

std::string add_suffixes(std::string text, const std::vector<std::string>& suffixes) {
  const size_t newline = text.rfind('\n');
  size_t last = text.size() - (newline == std::string::npos ? 0 : newline) + 1;
  if (newline == std::string::npos) last += 1;  // rfind gives -1 there
  for (const std::string& s : suffixes) {
    if (last + s.size() + 2 > kLineWidth) {
      text += ",\n       " + s;
      last = 7 + s.size();
    } else {
      text += ", " + s;
      last += s.size() + 2;
    }
  }
  return text + ")";
}

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "tensor(undefined)";
  const detail::TensorImpl& t = *x.impl();
  if (t.has(detail::kSymbolic))
    return fmt::format("tensor(traced, shape={}, dtype={})", t.shape.to_string(),
                       to_string(t.dtype));
  std::vector<std::string> suffixes;
  std::string body = "[]";
  const std::string dtype = fmt::format("dtype={}", to_string(t.dtype));
  if (t.numel == 0) {
    if (t.shape.rank() != 1) {
      std::string size = t.shape.to_string();
      suffixes.push_back("size=(" + size.substr(1, size.size() - 2) + ")");
    }
    if (t.dtype != DType::f32) suffixes.push_back(dtype);
  } else {
    if (t.dtype != DType::f32 && t.dtype != DType::i64 && t.dtype != DType::b8)
      suffixes.push_back(dtype);
    body = Printer(t).text();
  }
  if (t.has(detail::kRequiresGrad)) suffixes.push_back("requires_grad=True");
  return add_suffixes("tensor(" + body, suffixes);
}

}  // namespace tandem
