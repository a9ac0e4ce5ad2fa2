// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tandem/onnx/import/tensor_internal.h"
#include "tandem/onnx/tflite/model_internal.h"
#include "tandem/onnx/tflite/writer_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

namespace {

/// The schema's number of an element type.
int8_t schema_type(OnnxType type) {
  for (int8_t k = 0; k < 19; ++k)
    if (tflite_type(k) == type) return k;
  return -1;
}
const char* target_name(TfliteTarget target) {
  return target == TfliteTarget::tflite ? "TFLite" : "TensorFlow.js";
}
std::vector<int64_t> to_last() { return {0, 2, 3, 1}; }
std::vector<int64_t> to_first() { return {0, 3, 1, 2}; }

}  // namespace

// ---- nodes

namespace {
const OnnxAttribute* attribute_of(const OnnxNode& n, std::string_view name) {
  for (const OnnxAttribute& a : n.attributes)
    if (a.name == name) return &a;
  return nullptr;
}
}  // namespace

int64_t TfliteNode::attr(const char* name, int64_t otherwise) const {
  const OnnxAttribute* a = attribute_of(n, name);
  return a ? a->int_value : otherwise;
}
float TfliteNode::number(const char* name, float otherwise) const {
  const OnnxAttribute* a = attribute_of(n, name);
  return a ? a->float_value : otherwise;
}
std::string TfliteNode::text(const char* name, const char* otherwise) const {
  const OnnxAttribute* a = attribute_of(n, name);
  return a ? a->text : otherwise;
}
std::vector<int64_t> TfliteNode::list(const char* name, size_t i) const {
  if (const OnnxAttribute* a = attribute_of(n, name)) return a->int_list;
  return has(i) ? w.ints(n.inputs[i]) : std::vector<int64_t>();
}
int64_t TfliteNode::axis(int64_t a) const {
  const auto rank = static_cast<int64_t>(w.shape(in(0)).size());
  return a < 0 ? a + rank : a;
}

// ---- values

TfliteWriter::TfliteWriter(const OnnxModelProto& model, std::map<std::string, OnnxValue> values,
                           TfliteTarget target)
    : model_(model), target_(target), buffers_(1) {
  for (const auto& [name, v] : model.graph.initializers) {
    known_[name] = v;
    values[name] = v;
  }
  for (const auto& [name, v] : values) {
    shapes_[name] = v.shape();
    types_[name] = v.type();
  }
  for (const OnnxNode& n : model.graph.nodes) {
    for (const std::string& i : n.inputs) ++reads_[i];
    for (const std::string& o : n.outputs) makers_[o] = &n;
  }
  for (const OnnxPort& p : model.graph.outputs) reads_[p.name] += 2;
  find_known(values);
}

// What follows from constants and from sizes.
void TfliteWriter::find_known(std::map<std::string, OnnxValue>& values) {
  for (const OnnxNode& n : model_.graph.nodes) {
    const bool known = std::all_of(n.inputs.begin(), n.inputs.end(), [&](const std::string& i) {
      return i.empty() || known_.count(i);
    });
    if (!known && n.op != "Shape" && n.op != "Size") continue;
    if (n.op.starts_with("Random")) lacks(n, "a random number");
    for (const std::string& o : n.outputs)
      if (!o.empty()) known_[o] = values.at(o);
  }
}

std::vector<int64_t> TfliteWriter::ints(const std::string& name) const {
  const auto it = known_.find(name);
  TD_CHECK(it != known_.end(), Unsupported, "the setting '{}' is computed from the inputs", name);
  return it->second.tensor().to(DType::i64).reshape({-1}).to_vector<int64_t>();
}

int TfliteWriter::plain(const std::string& name) {
  make_numbers(name);
  Places& p = places_[name];
  if (p.plain >= 0) return p.plain;
  if (is_known(name)) return p.plain = constant(tensor(name));
  TD_CHECK(p.last >= 0, Internal, "'{}' is not written yet", name);
  const TfliteShape& s = shape(name);
  return p.plain = s[2] * s[3] == 1 ? reshaped(p.last, s) : transposed(p.last, to_first());
}

int TfliteWriter::last(const std::string& name) {
  make_numbers(name);
  Places& p = places_[name];
  if (p.last >= 0) return p.last;
  if (is_known(name))
    return p.last = constant(contiguous(permute(tensor(name), IntList(to_last()))));
  const TfliteShape s = shape(name);
  return p.last = s[2] * s[3] == 1 ? reshaped(plain(name), {s[0], s[2], s[3], s[1]})
                                   : transposed(plain(name), to_last());
}
bool TfliteWriter::prefers_last(const std::string& name) const {
  if (const auto n = numbers_of_.find(name); n != numbers_of_.end() && !places_.count(name))
    return prefers_last(n->second.codes);
  const auto it = places_.find(name);
  return it != places_.end() && it->second.plain < 0 && it->second.last >= 0;
}
void TfliteWriter::set(const std::string& name, int tensor, bool last) {
  (last ? places_[name].last : places_[name].plain) = tensor;
  names_[tensor].push_back(name);
  // An input keeps its own name where another value is the same.
  if (made_by_.count(tensor)) tensors_[static_cast<size_t>(tensor)].name = name;
}

// ---- operators

int TfliteWriter::add_tensor(const TfliteShape& shape, OnnxType type, uint32_t buffer) {
  TD_CHECK(schema_type(type) >= 0, Unsupported, "{} has no tensors of {}", target_name(target_),
           to_string(type));
  tensors_.push_back({shape, type, buffer, fmt::format("t{}", tensors_.size())});
  return static_cast<int>(tensors_.size()) - 1;
}
std::vector<int> TfliteWriter::op_of_many(int code, std::vector<int> in,
                                          const std::vector<TfliteShape>& shapes, OnnxType type,
                                          TfliteOptions options) {
  Operator o;
  o.code = code;
  o.in = std::move(in);
  o.options = std::move(options);
  for (const TfliteShape& s : shapes) {
    o.out.push_back(add_tensor(s, type, 0));
    made_by_[o.out.back()] = ops_.size();
  }
  ops_.push_back(std::move(o));
  return ops_.back().out;
}
int TfliteWriter::op(int code, std::vector<int> in, const TfliteShape& shape, OnnxType type,
                     TfliteOptions options) {
  return op_of_many(code, std::move(in), {shape}, type, std::move(options))[0];
}

int TfliteWriter::constant(const Tensor& t) {
  const OnnxValue v(t.contiguous());
  buffers_.push_back(raw_bytes(v));
  return add_tensor(v.shape(), v.type(), static_cast<uint32_t>(buffers_.size() - 1));
}
int TfliteWriter::constant(const std::vector<int64_t>& v) {
  return constant(tandem::tensor(v, Shape(static_cast<int64_t>(v.size()))).to(DType::i32));
}
int TfliteWriter::constant(float v) { return constant(full(Shape(), v, DType::f32)); }

int TfliteWriter::transposed(int tensor, const std::vector<int64_t>& order) {
  TfliteShape s;
  for (const int64_t d : order) s.push_back(shape_of(tensor)[static_cast<size_t>(d)]);
  const OnnxType type = tensors_[static_cast<size_t>(tensor)].type;
  const int t =
      op(39, {tensor, constant(order)}, s, type, {26, {}, -1, type == OnnxType::i8 ? 2 : 1});
  scaled(t, scales(tensor));
  return t;
}
int TfliteWriter::reshaped(int tensor, const TfliteShape& shape) {
  TfliteOptions o{17};
  std::vector<int32_t> sizes;
  for (const int64_t d : shape) sizes.push_back(static_cast<int32_t>(d));
  o.fields.add_numbers(0, sizes);
  const OnnxType type = tensors_[static_cast<size_t>(tensor)].type;
  const int t = op(22, {tensor, constant(shape)}, shape, type, std::move(o));
  scaled(t, scales(tensor));
  return t;
}

const OnnxNode* TfliteWriter::only_reader(const std::string& name) const {
  const auto reads = reads_.find(name);
  if (reads == reads_.end() || reads->second != 1) return nullptr;
  for (const OnnxNode& n : model_.graph.nodes)
    if (std::count(n.inputs.begin(), n.inputs.end(), name)) return &n;
  return nullptr;
}

bool TfliteWriter::fuse(const std::string& name, int8_t activation, const std::string& result,
                        int8_t before) {
  const auto p = places_.find(name);
  if (p == places_.end() || reads_[name] != 1) return false;
  const bool last = p->second.plain < 0;
  const int tensor = last ? p->second.last : p->second.plain;
  const auto made = made_by_.find(tensor);
  if (made == made_by_.end()) return false;
  // Nor any other value that is the same tensor.
  for (const std::string& n : names_[tensor])
    if (reads_[n] != 1) return false;
  Operator& o = ops_[made->second];
  if (o.options.activation < 0 || o.fused != before) return false;
  o.fused = activation;
  set(result, tensor, last);
  return true;
}

void TfliteWriter::fuse_into(int tensor, int8_t activation) {
  ops_.at(made_by_.at(tensor)).fused = activation;
}

// ---- codes

const OnnxNode* TfliteWriter::maker(const std::string& name) const {
  const auto it = makers_.find(name);
  return it == makers_.end() ? nullptr : it->second;
}

std::optional<TfliteScales> TfliteWriter::scales_of(const OnnxNode& n) const {
  const auto number = [&](size_t i) -> std::optional<double> {
    if (n.inputs.size() <= i || n.inputs[i].empty()) return 0;
    if (!is_known(n.inputs[i]) || tensor(n.inputs[i]).numel() != 1) return {};
    return tensor(n.inputs[i]).to(DType::f64).reshape({}).item<double>();
  };
  const std::string& codes = n.op == "QuantizeLinear" ? n.outputs[0] : n.inputs[0];
  const OnnxType type = types_.at(codes);
  const auto scale = number(1), zero = number(2);
  if (!scale || !zero || !(*scale > 0) || (type != OnnxType::u8 && type != OnnxType::i8)) return {};
  TfliteScales s;
  s.scale = {static_cast<float>(*scale)};
  s.zero = {static_cast<int64_t>(*zero) - (type == OnnxType::u8 ? 128 : 0)};
  return s;
}

std::optional<TfliteWriter::Codes> TfliteWriter::codes_of(const std::string& name) const {
  const auto it = numbers_of_.find(name);
  if (it == numbers_of_.end()) return {};
  return it->second;
}

void TfliteWriter::stands_for(const std::string& name, const std::string& codes) {
  const Places& p = places_[codes];
  numbers_of_[name] = {codes, scales(p.last >= 0 ? p.last : p.plain)};
}

void TfliteWriter::make_numbers(const std::string& name) {
  const auto n = numbers_of_.find(name);
  if (n == numbers_of_.end() || places_.count(name)) return;
  const bool last = prefers_last(n->second.codes);
  const int codes = last ? this->last(n->second.codes) : plain(n->second.codes);
  set(name, op(6, {codes}, shape_of(codes), OnnxType::f32, {38, {}, -1, 2}), last);
}

std::optional<TfliteWriter::StoredCodes> TfliteWriter::stored_codes(const std::string& name) const {
  const OnnxNode* n = maker(name);
  if (!n || n->op != "DequantizeLinear" || !is_known(n->inputs[0]) || !is_known(n->inputs[1]))
    return {};
  StoredCodes s;
  s.codes = tensor(n->inputs[0]);
  s.scales.scale = tensor(n->inputs[1]).to(DType::f32).reshape({-1}).to_vector<float>();
  if (n->inputs.size() > 2 && !n->inputs[2].empty()) s.scales.zero = ints(n->inputs[2]);
  s.scales.zero.resize(s.scales.scale.size());
  const OnnxAttribute* axis = attribute_of(*n, "axis");
  s.scales.axis = s.scales.scale.size() == 1 ? 0 : axis ? axis->int_value : 1;
  return s;
}

void TfliteWriter::lacks(const OnnxNode& n, const std::string& what) const {
  TD_FAIL(Unsupported, "{} '{}': {} has no form in {}", n.op,
          n.name.empty() && !n.outputs.empty() ? n.outputs[0] : n.name, what, target_name(target_));
}

// ---- the file

std::string TfliteWriter::file(const std::vector<int>& inputs,
                               const std::vector<int>& outputs) const {
  io::FlatWriter model, graph, signature;
  std::vector<io::FlatWriter> codes, ops, tensors, buffers, ports[2];
  std::map<std::pair<int, int>, uint32_t> numbers;
  for (const Operator& o : ops_) {
    const auto [at, fresh] = numbers.emplace(std::pair(o.code, o.options.version), codes.size());
    if (fresh) {
      codes.emplace_back();
      codes.back().add<int8_t>(0, static_cast<int8_t>(std::min(o.code, 127)));
      if (o.options.custom[0]) codes.back().add_text(1, o.options.custom);
      codes.back().add<int32_t>(2, o.options.version);
      codes.back().add<int32_t>(3, o.code);
    }
    io::FlatWriter t, fields = o.options.fields;
    if (o.options.activation >= 0) fields.add<int8_t>(o.options.activation, o.fused);
    t.add<uint32_t>(0, at->second);
    t.add_numbers(1, o.in);
    t.add_numbers(2, o.out);
    if (o.options.kind != 0) {
      t.add<uint8_t>(3, o.options.kind);
      t.add_table(4, std::move(fields));
    }
    ops.push_back(std::move(t));
  }
  for (const Written& w : tensors_) {
    io::FlatWriter t;
    t.add_numbers(0, std::vector<int32_t>(w.shape.begin(), w.shape.end()));
    t.add<int8_t>(1, schema_type(w.type));
    t.add<uint32_t>(2, w.buffer);
    t.add_text(3, w.name);
    if (!w.scales.scale.empty()) {
      io::FlatWriter q;
      q.add_numbers(2, w.scales.scale);
      q.add_numbers(3, w.scales.zero);
      q.add<int32_t>(6, static_cast<int32_t>(w.scales.axis));
      t.add_table(4, std::move(q));
    }
    t.add<uint8_t>(8, 1);
    tensors.push_back(std::move(t));
  }
  for (const std::string& b : buffers_) {
    buffers.emplace_back();
    if (!b.empty()) buffers.back().add_bytes(0, b, 16);
  }
  for (const int side : {0, 1})
    for (const int i : side == 0 ? inputs : outputs) {
      ports[side].emplace_back();
      ports[side].back().add_text(0, tensors_[static_cast<size_t>(i)].name);
      ports[side].back().add<uint32_t>(1, static_cast<uint32_t>(i));
    }
  graph.add_tables(0, std::move(tensors));
  graph.add_numbers(1, inputs);
  graph.add_numbers(2, outputs);
  graph.add_tables(3, std::move(ops));
  graph.add_text(4, "main");
  signature.add_tables(0, std::move(ports[0]));
  signature.add_tables(1, std::move(ports[1]));
  signature.add_text(2, "serving_default");
  model.add<uint32_t>(0, 3);
  model.add_tables(1, std::move(codes));
  model.add_tables(2, {std::move(graph)});
  model.add_text(3, "Tandem");
  model.add_tables(4, std::move(buffers));
  model.add_tables(7, {std::move(signature)});
  return model.finish("TFL3");
}

std::string TfliteWriter::run() {
  std::map<std::string, int> unknown;
  for (const OnnxNode& n : model_.graph.nodes)
    if (!is_known(n.outputs[0]) && (!n.domain.empty() || !find_tflite_write(n.op)))
      ++unknown[n.domain.empty() ? n.op : n.domain + "." + n.op];
  std::string list;
  for (const auto& [op, n] : unknown)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", n, op);
  TD_CHECK(unknown.empty(), Unsupported, "{} of the model's ops {} no form in {}: {}",
           unknown.size(), unknown.size() == 1 ? "has" : "have", target_name(target_), list);
  std::vector<int> inputs, outputs;
  for (const OnnxPort& p : model_.graph.inputs) {
    if (is_known(p.name)) continue;
    inputs.push_back(add_tensor(shape(p.name), type(p.name), 0));
    tensors_.back().name = p.name;
    set(p.name, inputs.back());
  }
  for (const OnnxNode& n : model_.graph.nodes) {
    if (is_known(n.outputs[0]) || left_out_.count(&n)) continue;
    TfliteNode node{*this, n};
    if (!write_as_codes(node)) find_tflite_write(n.op)(node);
  }
  for (const OnnxPort& p : model_.graph.outputs) {
    int t = plain(p.name);
    TD_CHECK(tensors_[static_cast<size_t>(t)].type == types_.at(p.name), Unsupported,
             "the output '{}' is of codes of {}, which layers of {} do not give", p.name,
             to_string(types_.at(p.name)), target_name(target_));
    // An output that is an input, a constant or another output gets a tensor of its own.
    if (!made_by_.count(t) || std::count(outputs.begin(), outputs.end(), t))
      t = reshaped(t, shape(p.name));
    outputs.push_back(t);
    tensors_[static_cast<size_t>(t)].name = p.name;
  }
  return file(inputs, outputs);
}

TfliteWrite find_tflite_write(std::string_view op) {
  static const auto* const rows = [] {
    auto* all = new std::map<std::string, TfliteWrite, std::less<>>;
    for (const auto& family : {tflite_layer_writes(), tflite_plain_writes(), tflite_code_writes()})
      for (const TfliteWriteRow& r : family) all->emplace(r.op, r.write);
    return all;
  }();
  const auto it = rows->find(op);
  return it == rows->end() ? nullptr : it->second;
}
std::vector<std::string> tflite_written_ops() {
  std::vector<std::string> names;
  for (const auto& family : {tflite_layer_writes(), tflite_plain_writes(), tflite_code_writes()})
    for (const TfliteWriteRow& r : family) names.emplace_back(r.op);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tandem::onnx
