// SPDX-License-Identifier: Apache-2.0
// to_string(Tensor): the text that torch prints with the same options. Follows
// torch/_tensor_str.py step by step; the only difference is `dtype=float64` for
// `dtype=torch.float64`.
#include "tandem/tensor/format.h"
#include "tandem/tensor/lazy.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "tandem/tensor/device_memory.h"
#include "tandem/tensor/print_options.h"
#include "tandem/tensor/strided.h"
#include "tandem/tensor/tensor.h"

namespace tandem {
namespace {

constinit std::mutex g_lock;
constinit PrintOptions g_options;  // guarded by g_lock
constinit std::atomic<detail::NodeNameFn> g_node_name{nullptr};

/// One tensor being printed; knows which elements are shown and how each is formatted.
class Printer {
 public:
  Printer(const detail::TensorImpl& t, const PrintOptions& o)
      : t_(t), o_(o), summarize_(t.numel > o.threshold), floating_(is_floating(t.dtype)) {
    measure();
  }
  std::string text() { return level(0, 0, 0); }

 private:
  bool cut(int64_t n) const { return summarize_ && n > 2 * o_.edgeitems; }

  /// Call f(index) for the shown indices of a dimension of size n, and gap() where some are left
  /// out.
  template <class F, class G>
  void for_shown(int64_t n, F f, G gap) const {
    if (!cut(n)) {
      for (int64_t i = 0; i < n; ++i) f(i);
      return;
    }
    for (int64_t i = 0; i < o_.edgeitems; ++i) f(i);
    gap();
    for (int64_t i = n - o_.edgeitems; i < n; ++i) f(i);
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
    scientific_ = o_.sci_mode.value_or(most / least > 1000.0 || most > 1.0e8 || least < 1.0e-4);
    for_normal([&](double v) {
      const size_t n = scientific_ ? fmt::formatted_size("{:.{}e}", v, o_.precision)
                       : whole_    ? fmt::formatted_size("{:.0f}", v) + 1
                                   : fmt::formatted_size("{:.{}f}", v, o_.precision);
      width_ = std::max(width_, n);
    });
  }

  /// One element without padding.
  std::string bare(int64_t offset) const {
    if (floating_) {
      const double v = real(offset);
      if (std::isnan(v)) return "nan";
      if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
      if (scientific_) return fmt::format("{:.{}e}", v, o_.precision);
      return whole_ ? fmt::format("{:.0f}.", v) : fmt::format("{:.{}f}", v, o_.precision);
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
    if (summarize_ && o_.edgeitems == 0) return "[...]";
    const int64_t per_line =
        std::max<int64_t>(1, (o_.linewidth - full) / static_cast<int64_t>(width_ + 2));
    std::string text = "[";
    int64_t n = 0;
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
  const PrintOptions& o_;
  bool summarize_, floating_;
  bool whole_ = true, scientific_ = false;
  size_t width_ = 1;
};

std::string add_suffixes(std::string text, const std::vector<std::string>& suffixes,
                         int64_t linewidth) {
  const size_t newline = text.rfind('\n');
  size_t last = text.size() - (newline == std::string::npos ? 0 : newline) + 1;
  if (newline == std::string::npos) last += 1;  // rfind gives -1 there
  for (const std::string& s : suffixes) {
    if (static_cast<int64_t>(last + s.size()) + 2 > linewidth) {
      text += ",\n       " + s;
      last = 7 + s.size();
    } else {
      text += ", " + s;
      last += s.size() + 2;
    }
  }
  return text + ")";
}

std::string size_suffix(const Shape& shape) {
  std::string size = shape.to_string();
  return fmt::format("size=({}{})", size.substr(1, size.size() - 2), shape.rank() == 1 ? "," : "");
}

PrintOptions profile(const std::string& name, const PrintOptions& now) {
  PrintOptions o;
  if (name.empty()) return now;
  if (name == "short") {
    o.precision = o.edgeitems = 2;
  } else if (name == "full") {
    o.threshold = std::numeric_limits<int64_t>::max();
  } else {
    TD_CHECK(name == "default", Value,
             "set_printoptions: there is no profile '{}'\nProfiles are default, short and full.",
             name);
  }
  return o;
}

}  // namespace

void set_printoptions(const PrintOptionsChange& change) {
  const std::lock_guard hold(g_lock);
  PrintOptions o = profile(change.profile, g_options);
  auto take = [](const char* name, const std::optional<int64_t>& from, int64_t& to, int64_t least,
                 int64_t most) {
    if (!from) return;
    TD_CHECK(*from >= least && *from <= most, Value,
             "set_printoptions: {} must be {} to {}, got {}", name, least, most, *from);
    to = *from;
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  take("precision", change.precision, o.precision, 0, 100);
  take("threshold", change.threshold, o.threshold, 0, kMost);
  take("edgeitems", change.edgeitems, o.edgeitems, 0, kMost / 2);
  take("linewidth", change.linewidth, o.linewidth, 1, kMost / 2);
  o.sci_mode = change.sci_mode;
  g_options = o;
}

PrintOptions get_printoptions() {
  const std::lock_guard hold(g_lock);
  return g_options;
}

void detail::set_node_name(NodeNameFn f) { g_node_name = f; }

std::string to_string(const Tensor& x) { return to_string(x, get_printoptions()); }

std::string to_string(const Tensor& x, const PrintOptions& options) {
  if (!x.defined()) return "tensor(undefined)";
  const detail::TensorImpl& t = *x.impl();
  if (!detail::readable(x))
    return fmt::format("tensor(traced, shape={}, dtype={})", t.shape.to_string(),
                       to_string(t.dtype));
  std::vector<std::string> suffixes;
  if (t.has(detail::kOnDevice)) suffixes.push_back("device='" + to_string(t.device) + "'");
  std::string body = "[]";
  const std::string dtype = fmt::format("dtype={}", to_string(t.dtype));
  if (t.numel == 0) {
    if (t.shape.rank() != 1) suffixes.push_back(size_suffix(t.shape));
    if (t.dtype != DType::f32) suffixes.push_back(dtype);
  } else {
    if (options.edgeitems == 0) suffixes.push_back(size_suffix(t.shape));
    if (t.dtype != DType::f32 && t.dtype != DType::i64 && t.dtype != DType::b8)
      suffixes.push_back(dtype);
    body = Printer(*detail::host_value(x).impl(), options).text();
  }
  const detail::NodeNameFn name_of = g_node_name;
  const std::string made_by = name_of && t.node ? name_of(*t.node) : "";
  if (!made_by.empty())
    suffixes.push_back("grad_fn=<" + made_by + ">");
  else if (t.has(detail::kRequiresGrad))
    suffixes.push_back("requires_grad=True");
  return add_suffixes("tensor(" + body, suffixes, options.linewidth);
}

}  // namespace tandem
