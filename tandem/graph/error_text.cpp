// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/error_text.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "tandem/graph/apply.h"

namespace tandem {
namespace {

/// The whole number that an attribute has.
struct ReadNumber final : AttrVisitor {
  std::string_view wanted;
  std::optional<int64_t> found;
  explicit ReadNumber(std::string_view name) : wanted(name) {}
  void operator()(const char* name, int64_t& v) override {
    if (name == wanted) found = v;
  }
  void operator()(const char*, double&) override {}
  void operator()(const char*, bool&) override {}
  void operator()(const char*, DType&) override {}
  void operator()(const char*, std::string&) override {}
  void operator()(const char*, IntList&) override {}
  void operator()(const char*, Scalar&) override {}
  void operator()(const char*, std::vector<int64_t>&) override {}
  void operator()(const char*, Ref<RefCounted>&) override {}
};

std::optional<int64_t> attr_of(const KernelCall& call, std::string_view name) {
  if (!call.op.attrs || !call.attrs) return {};
  ReadNumber read(name);
  call.op.attrs->visit(const_cast<void*>(call.attrs), read);
  return read.found;
}

const Array* input_of(const KernelCall& call, std::string_view name) {
  for (int i = 0; i < call.n_in && i < call.op.n_in; ++i) {
    std::string_view own = call.op.in_names[i];
    if (!own.empty() && std::string_view("?*$").find(own.back()) != own.npos) own.remove_suffix(1);
    if (own == name && call.in[i].shape) return &call.in[i];
  }
  return nullptr;
}

// "dim", "x", "x.dim", "x.1-1".
std::optional<std::string> fact(const KernelCall& call, std::string_view name) {
  const size_t dot = name.find('.');
  const Array* in = input_of(call, name.substr(0, dot));
  if (dot == name.npos) {
    if (in) return Shape(std::span<const int64_t>(in->shape, in->rank)).to_string();
    const std::optional<int64_t> number = attr_of(call, name);
    return number ? std::optional(std::to_string(*number)) : std::nullopt;
  }
  std::string_view at = name.substr(dot + 1);
  const bool last = at.ends_with("-1");
  if (last) at.remove_suffix(2);
  const bool digit = at.size() == 1 && at[0] >= '0' && at[0] <= '9';
  std::optional<int64_t> dim = digit ? std::optional<int64_t>(at[0] - '0') : attr_of(call, at);
  if (!in || !dim || *dim >= in->rank || *dim < -in->rank) return {};
  // Of several index tensors an attribute names the first one's dimension alone.
  if (!digit && call.op.variadic && call.n_in > call.op.n_in) return {};
  if (*dim < 0) *dim += in->rank;
  if (last && in->shape[*dim] == 0) return {};  // there is no last index
  return std::to_string(in->shape[*dim] - (last ? 1 : 0));
}

// Nothing where a fact is missing.
std::optional<std::string> filled(std::string_view text, int64_t value, const KernelCall& call) {
  std::string out;
  while (!text.empty()) {
    const size_t open = text.find('{');
    out += text.substr(0, open);
    if (open == text.npos) break;
    const size_t close = text.find('}', open);
    TD_ASSERT(close != text.npos);
    const std::string_view name = text.substr(open + 1, close - open - 1);
    const std::optional<std::string> f =
        name.empty() ? std::optional(std::to_string(value)) : fact(call, name);
    if (!f) return {};
    out += *f;
    text.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace

std::string fill_error_text(const char* text, int64_t value, const KernelCall& call) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t open = rest.find('<'), close = open == rest.npos ? open : rest.find('>', open);
    const std::optional<std::string> plain = filled(rest.substr(0, open), value, call);
    TD_ASSERT(plain);
    out += *plain;
    if (close == rest.npos) break;
    out += filled(rest.substr(open + 1, close - open - 1), value, call).value_or("");
    rest.remove_prefix(close + 1);
  }
  return out;
}

namespace {

[[noreturn]] void throw_filled(int code, int64_t value, const KernelCall& call) {
  const char* text = code <= 3 ? call.op.error_texts[code - 1] : nullptr;
  TD_CHECK(text, Internal, "a kernel reported code {} that the row has no text for", code);
  const bool index = std::string_view(text).starts_with("index");
  throw Error(index ? ErrorKind::Index : ErrorKind::Value, fill_error_text(text, value, call));
}

}  // namespace

void check_error_word(const KernelCall& call) {
  if (const int code = call.error ? call.error->code.load() : 0)
    throw_filled(code, call.error->value.load(), call);
}

void check_error_word(const OpDef& op, const ErrorWord& word) {
  if (const int code = word.code.load()) throw_filled(code, word.value.load(), KernelCall{op});
}

}  // namespace tandem
