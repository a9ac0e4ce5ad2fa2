// SPDX-License-Identifier: Apache-2.0
// What files hold that nothing here reads: attributes that an op does not have, inputs and outputs
// beyond its own, opsets beyond the known ones.
#include <algorithm>
#include <memory>

#include "tandem/base/log.h"
#include "tandem/graph/op_def.h"
#include "tandem/onnx/import/run_internal.h"

namespace tandem::onnx {
namespace {

/// The names of an op's attributes.
class AttributeNames : public AttrVisitor {
 public:
  explicit AttributeNames(const AttrsType& fields) {
    const std::unique_ptr<void, void (*)(void*)> one(fields.make(), fields.destroy);
    fields.visit(one.get(), *this);
  }
  void operator()(const char* name, int64_t&) override { names.push_back(name); }
  void operator()(const char* name, bool&) override { names.push_back(name); }
  void operator()(const char* name, std::string&) override { names.push_back(name); }
  void operator()(const char* name, double&) override { names.push_back(name); }
  void operator()(const char* name, Scalar&) override { names.push_back(name); }
  void operator()(const char* name, DType&) override { names.push_back(name); }
  void operator()(const char* name, IntList&) override { names.push_back(name); }
  void operator()(const char* name, std::vector<int64_t>&) override { names.push_back(name); }
  void operator()(const char* name, Ref<RefCounted>&) override { names.push_back(name); }
  std::vector<std::string> names;
};

struct Takes {
  size_t in, out;
  std::vector<std::string> attributes;
};

Takes takes_of(const OnnxSignature& s) {
  Takes t{static_cast<size_t>(s.in), static_cast<size_t>(s.out), {}};
  std::string word;
  for (const char* at = s.attributes;; ++at) {
    if (*at && *at != ' ') {
      if (*at != '~') word += *at;
      continue;
    }
    if (!word.empty()) t.attributes.push_back(std::exchange(word, {}));
    if (!*at) return t;
  }
}

Takes takes_of(const OnnxFunction& f) {
  Takes t{f.body.inputs.size(), f.body.outputs.size(), f.attributes};
  for (const OnnxAttribute& a : f.default_attributes) t.attributes.push_back(a.name);
  return t;
}

Takes takes_of(const OpDef& op) {
  Takes t{op.variadic ? size_t{kOnnxAny} : op.n_in, op.n_out, {}};
  if (op.attrs) t.attributes = AttributeNames(*op.attrs).names;
  return t;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text.empty() ? "none" : text;
}

size_t used(const std::vector<std::string>& names) {
  size_t n = names.size();
  while (n > 0 && names[n - 1].empty()) --n;
  return n;
}

}  // namespace

std::string unread_of(const OnnxNode& n) {
  if (!n.function && !n.row && !n.direct) return "";
  const Takes t = n.function ? takes_of(*n.function)
                  : n.row    ? takes_of(n.row->signature)
                             : takes_of(*n.direct);
  for (const OnnxAttribute& a : n.attributes) {
    // Until opset 5 a hint that the result may be written over an input.
    if (a.name == "consumed_inputs" && n.domain.empty() && n.version < 6) continue;
    if (std::find(t.attributes.begin(), t.attributes.end(), a.name) == t.attributes.end())
      return fmt::format("its attribute '{}' is unknown; known in opset {}: {}", a.name, n.version,
                         listed(t.attributes));
  }
  if (used(n.inputs) > t.in) return fmt::format("takes {} inputs, got {}", t.in, used(n.inputs));
  if (used(n.outputs) > t.out)
    return fmt::format("has {} outputs, {} are named", t.out, used(n.outputs));
  return "";
}

std::span<const OnnxDomain> onnx_domains() {
  // Not kOnnxTf and kOnnxKeras: graphs of TensorFlow are not ONNX files.
  static constexpr OnnxDomain kDomains[] = {
      {"", 28},           {kOnnxMl, 5},        {kOnnxPreview, 1},
      {kOnnxTraining, 1}, {kOnnxMicrosoft, 1}, {kOnnxTandem, 1}};
  return kDomains;
}

void warn_of_opsets(const OnnxModelProto& model, const std::string& what) {
  for (const OnnxDomain& d : onnx_domains()) {
    const auto asked = model.opsets.find(d.name);
    if (asked != model.opsets.end() && asked->second > d.last)
      log_warning(
          "{} asks for opset {} of {}; ops are known up to opset {} and computed as defined there, "
          "whatever has changed since",
          what, asked->second, *d.name ? d.name : "ai.onnx", d.last);
  }
}

}  // namespace tandem::onnx
