// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/pickle/pickle_numpy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/io/npy_internal.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

using Kind = PickleNode::Kind;
using Use = PickleGlobal::Use;

// Before and since NumPy 2.
constexpr std::string_view kReconstruct[] = {"numpy.core.multiarray _reconstruct",
                                             "numpy._core.multiarray _reconstruct"};
constexpr std::string_view kScalar[] = {"numpy.core.multiarray scalar",
                                        "numpy._core.multiarray scalar"};
constexpr std::string_view kDType = "numpy dtype", kEncode = "_codecs encode";
constexpr std::string_view kNoBytes[] = {"__builtin__ bytes", "builtins bytes"};  // of nothing
constexpr PickleGlobal kNumpyGlobals[] = {
    {kReconstruct[0], Use::object}, {kReconstruct[1], Use::object}, {kScalar[0], Use::function},
    {kScalar[1], Use::function},    {kDType, Use::object},          {"numpy ndarray"},
    {kEncode, Use::function},       {kNoBytes[0], Use::function},   {kNoBytes[1], Use::function},
};

bool calls(const PickleNode& n, std::span<const std::string_view> names) {
  return n.kind == Kind::call && std::find(names.begin(), names.end(), n.text) != names.end();
}

template <class... T>
[[noreturn]] TD_COLD void fail_numpy(std::string_view what, fmt::format_string<T...> format,
                                     const T&... args) {
  TD_FAIL(Format, "{}: {}", what, fmt::vformat(format, fmt::make_format_args(args...)));
}

// Raw bytes: as they are, or as Python 2's protocol has them, a text whose characters are bytes.
std::string bytes_of(const PickleNode& n, std::string_view what) {
  if (n.kind == Kind::bytes) return n.text;
  if (calls(n, kNoBytes) && n.arguments->items.empty()) return "";
  const bool encoded =
      n.kind == Kind::call && n.text == kEncode && n.arguments->items.size() == 2 &&
      n.arguments->items[0]->kind == Kind::text && n.arguments->items[1]->text == "latin1";
  if (!encoded) fail_numpy(what, "a value of NumPy has no bytes");
  std::string out;
  const std::string& text = n.arguments->items[0]->text;
  Budget::take(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c < 0x80) {
      out += static_cast<char>(c);
      continue;
    }
    if ((c != 0xC2 && c != 0xC3) || ++at == text.size())
      fail_numpy(what, "a value of NumPy has a character above 255 among its bytes");
    out += static_cast<char>((c & 3) << 6 | (static_cast<unsigned char>(text[at]) & 0x3F));
  }
  return out;
}

// "f8" of numpy.dtype('f8', False, True), once its byte order is known to be this machine's.
std::string code_of(const PickleNode& n, std::string_view what) {
  const bool named = n.kind == Kind::call && n.text == kDType && !n.arguments->items.empty() &&
                     (n.arguments->items[0]->kind == Kind::text ||
                      n.arguments->items[0]->kind == Kind::bytes);  // of Python 2
  if (!named) fail_numpy(what, "a value of NumPy has no dtype");
  if (n.state && n.state->items.size() > 1 && n.state->items[1]->text == ">")
    fail_numpy(what, "a value of NumPy is big-endian, which is not supported in this version");
  return n.arguments->items[0]->text;
}

template <class From, class To>
void widen_all(const std::string& bytes, Tensor& out, std::string_view what) {
  To* to = static_cast<To*>(out.impl()->data);
  for (size_t i = 0; i < bytes.size() / sizeof(From); ++i) {
    From v;
    std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
    if (static_cast<uint64_t>(v) > static_cast<uint64_t>(INT64_MAX))
      fail_numpy(what, "an element is {}, which does not fit i64", v);
    to[i] = static_cast<To>(v);
  }
}

/// Codes of NumPy that npy files here do not have: their width, and what they become.
struct Wider {
  std::string_view code;
  size_t bytes;
  DType dtype;
  int64_t last;  ///< a last dimension; 0: none
  void (*widen)(const std::string&, Tensor&, std::string_view);
};
constexpr Wider kWider[] = {
    {"u2", 2, DType::i32, 0, widen_all<uint16_t, int32_t>},
    {"u4", 4, DType::i64, 0, widen_all<uint32_t, int64_t>},
    {"u8", 8, DType::i64, 0, widen_all<uint64_t, int64_t>},
    {"c8", 8, DType::f32, 2, nullptr},
    {"c16", 16, DType::f64, 2, nullptr},
};

Tensor filled(const std::string& code, Shape shape, const std::string& bytes,
              std::string_view what) {
  Wider w{code, 0, DType::f32, 0, nullptr};
  if (const auto dtype = npy_dtype(code)) {
    w = {code, size_of(*dtype), *dtype, 0, nullptr};
  } else {
    const auto* found = std::find_if(std::begin(kWider), std::end(kWider),
                                     [&](const Wider& each) { return each.code == code; });
    if (found == std::end(kWider))
      fail_numpy(what, "the elements of an array are of NumPy's type '{}', which is not a number",
                 code);
    w = *found;
  }
  if (bytes.size() / w.bytes != static_cast<size_t>(shape.numel().value()) ||
      bytes.size() % w.bytes != 0)
    fail_numpy(what, "an array of shape {} has {} bytes", shape.to_string(), bytes.size());
  if (w.last) shape.push_back(w.last);
  Tensor out(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, w.dtype, cpu)));
  if (w.widen)
    w.widen(bytes, out, what);
  else if (!bytes.empty())
    std::memcpy(out.impl()->data, bytes.data(), bytes.size());
  if (w.dtype == DType::b8 &&
      std::any_of(bytes.begin(), bytes.end(), [](char c) { return c != 0 && c != 1; }))
    fail_numpy(what, "an array is bool, but an element is neither 0 nor 1");
  return out;
}

void append_character(std::string& out, uint32_t c) {
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      add(0xE0 | c >> 12);
    } else {
      add(0xF0 | c >> 18);
      add(0x80 | (c >> 12 & 0x3F));
    }
    add(0x80 | (c >> 6 & 0x3F));
  }
  add(0x80 | (c & 0x3F));
}

std::string text_of_utf32(const std::string& bytes, std::string_view what) {
  if (bytes.size() % 4 != 0) fail_numpy(what, "a text of NumPy is truncated");
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 4) {
    uint32_t c;
    std::memcpy(&c, bytes.data() + at, 4);
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
      fail_numpy(what, "a text of NumPy has a character that is none");
    if (c != 0) append_character(out, c);
  }
  return out;
}

}  // namespace

std::span<const PickleGlobal> numpy_globals() { return kNumpyGlobals; }

bool is_numpy_array(const PickleNode& n) { return calls(n, kReconstruct); }
bool is_numpy_scalar(const PickleNode& n) { return calls(n, kScalar); }

Tensor numpy_array(const PickleNode& n, std::string_view what) {
  // (version, shape, dtype, Fortran order, bytes)
  if (!is_numpy_array(n) || !n.state || n.state->items.size() != 5)
    fail_numpy(what, "expected an array of NumPy");
  const auto& p = n.state->items;
  if (p[1]->kind != Kind::tuple || p[1]->items.size() > kMaxRank)
    fail_numpy(what, "an array of NumPy has {} dimensions, at most {} are possible",
               p[1]->items.size(), kMaxRank);
  Shape shape;
  int64_t count = 1;
  for (const PickleNode* d : p[1]->items) {
    if (d->kind != Kind::integer || d->integer < 0 ||
        __builtin_mul_overflow(count, d->integer, &count) || count >= int64_t{1} << 40)
      fail_numpy(what, "a size of an array of NumPy is out of range");
    shape.push_back(d->integer);
  }
  const bool fortran = p[3]->integer != 0;
  if (fortran) std::reverse(shape.begin(), shape.end());
  const Tensor t = filled(code_of(*p[2], what), shape, bytes_of(*p[4], what), what);
  if (!fortran || shape.rank() < 2) return t;
  Shape sizes = t.shape();
  Strides steps;
  const int rank = shape.rank();  // a last dimension of complex numbers stays where it is
  std::reverse(sizes.begin(), sizes.begin() + rank);
  for (int i = 0; i < sizes.rank(); ++i)
    steps[i] = t.impl()->strides[static_cast<size_t>(i < rank ? rank - 1 - i : i)];
  return Tensor(Ref<detail::TensorImpl>::adopt(
      detail::new_view(*t.impl(), sizes, steps, t.impl()->data, t.dtype())));
}

NumpyScalar numpy_scalar(const PickleNode& n, std::string_view what) {
  if (!is_numpy_scalar(n) || n.arguments->items.size() != 2)
    fail_numpy(what, "expected a scalar of NumPy");
  const std::string code = code_of(*n.arguments->items[0], what);
  const std::string bytes = bytes_of(*n.arguments->items[1], what);
  if (code.starts_with('U')) return text_of_utf32(bytes, what);
  if (code.starts_with('S')) return bytes;
  const Tensor t = filled(code, {}, bytes, what);
  if (t.numel() != 1) fail_numpy(what, "a scalar of NumPy is complex");
  if (t.dtype() == DType::b8) return *static_cast<const bool*>(t.impl()->data);
  if (is_floating(t.dtype())) {
    double v = 0;
    detail::convert_elements(t.impl()->data, t.dtype(), &v, DType::f64, 1);
    return v;
  }
  int64_t v = 0;
  detail::convert_elements(t.impl()->data, t.dtype(), &v, DType::i64, 1);
  return v;
}

}  // namespace tandem::io
