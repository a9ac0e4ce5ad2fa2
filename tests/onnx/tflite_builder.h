// SPDX-License-Identifier: Apache-2.0
// Small .tflite files, field by field as in the schema.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/io/flatbuffer.h"

namespace tandem::onnx {

class TfliteFile {
 public:
  enum Type : int8_t {
    f32 = 0,
    f16 = 1,
    i32 = 2,
    u8 = 3,
    i64 = 4,
    b8 = 6,
    i16 = 7,
    i8 = 9,
    resource = 13
  };
  TfliteFile() { buffers_.emplace_back(); }

  /// A tensor; its number. With `scales` it holds codes.
  int tensor(const std::string& name, Type type, const std::vector<int32_t>& shape,
             const std::vector<float>& scales = {}, const std::vector<int64_t>& zeros = {},
             int32_t axis = 0) {
    return add_tensor(name, type, shape, 0, scales, zeros, axis);
  }
  template <class T>
  int constant(const std::string& name, Type type, const std::vector<int32_t>& shape,
               const std::vector<T>& values, const std::vector<float>& scales = {},
               const std::vector<int64_t>& zeros = {}, int32_t axis = 0) {
    io::FlatWriter b;
    b.add_bytes(0, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}, 16);
    buffers_.push_back(std::move(b));
    return add_tensor(name, type, shape, static_cast<uint32_t>(buffers_.size() - 1), scales, zeros,
                      axis);
  }
  void op(int code, const std::vector<int32_t>& in, const std::vector<int32_t>& out,
          io::FlatWriter options = {}, const std::string& custom = "", int version = 1,
          const std::string& custom_options = "") {
    io::FlatWriter c, o;
    c.add<int8_t>(0, static_cast<int8_t>(code < 127 ? code : 127));
    if (!custom.empty()) c.add_text(1, custom);
    c.add<int32_t>(2, version);
    c.add<int32_t>(3, code);
    o.add<uint32_t>(0, static_cast<uint32_t>(codes_.size()));
    codes_.push_back(std::move(c));
    o.add_numbers(1, in);
    o.add_numbers(2, out);
    o.add<uint8_t>(3, kind_of(code));
    o.add_table(4, std::move(options));
    if (!custom_options.empty()) o.add_bytes(5, custom_options);
    ops_.push_back(std::move(o));
  }
  /// Tensors that only say scales, of the last operator.
  void intermediates(const std::vector<int32_t>& tensors) { ops_.back().add_numbers(8, tensors); }
  /// The tensor keeps its value from call to call.
  void variable(int tensor) { tensors_[static_cast<size_t>(tensor)].add<uint8_t>(5, 1); }
  /// Ends a subgraph.
  void graph(const std::string& name, const std::vector<int32_t>& in,
             const std::vector<int32_t>& out) {
    io::FlatWriter g;
    g.add_tables(0, std::move(tensors_));
    g.add_numbers(1, in);
    g.add_numbers(2, out);
    g.add_tables(3, std::move(ops_));
    g.add_text(4, name);
    graphs_.push_back(std::move(g));
    tensors_.clear();
    ops_.clear();
  }
  void signature(const std::string& key, const std::vector<std::pair<std::string, uint32_t>>& in,
                 const std::vector<std::pair<std::string, uint32_t>>& out, uint32_t graph = 0) {
    io::FlatWriter s;
    for (int side = 0; side < 2; ++side) {
      std::vector<io::FlatWriter> ports;
      for (const auto& [name, tensor] : side == 0 ? in : out) {
        ports.emplace_back();
        ports.back().add_text(0, name);
        ports.back().add<uint32_t>(1, tensor);
      }
      s.add_tables(side, std::move(ports));
    }
    s.add_text(2, key);
    s.add<uint32_t>(4, graph);
    signatures_.push_back(std::move(s));
  }
  std::string bytes(uint32_t version = 3) const {
    io::FlatWriter m;
    m.add<uint32_t>(0, version);
    m.add_tables(1, codes_);
    m.add_tables(2, graphs_);
    m.add_text(3, "test");
    m.add_tables(4, buffers_);
    m.add_tables(7, signatures_);
    return m.finish("TFL3");
  }

  // ---- options
  static io::FlatWriter conv(int8_t padding, int32_t stride, int8_t activation) {
    io::FlatWriter o;
    o.add<int8_t>(0, padding);
    o.add<int32_t>(1, stride);
    o.add<int32_t>(2, stride);
    o.add<int8_t>(3, activation);
    o.add<int32_t>(4, 1);
    o.add<int32_t>(5, 1);
    return o;
  }
  static io::FlatWriter depthwise(int8_t padding, int32_t stride, int8_t activation) {
    io::FlatWriter o;
    o.add<int8_t>(0, padding);
    o.add<int32_t>(1, stride);
    o.add<int32_t>(2, stride);
    o.add<int32_t>(3, 1);
    o.add<int8_t>(4, activation);
    o.add<int32_t>(5, 1);
    o.add<int32_t>(6, 1);
    return o;
  }
  static io::FlatWriter pool(int8_t padding, int32_t stride, int32_t size) {
    io::FlatWriter p;
    p.add<int8_t>(0, padding);
    p.add<int32_t>(1, stride);
    p.add<int32_t>(2, stride);
    p.add<int32_t>(3, size);
    p.add<int32_t>(4, size);
    return p;
  }
  static io::FlatWriter activation(int8_t a) {
    io::FlatWriter o;
    o.add<int8_t>(0, a);
    return o;
  }
  static io::FlatWriter number(float v) {
    io::FlatWriter o;
    o.add<float>(0, v);
    return o;
  }
  static io::FlatWriter whole(const std::vector<int32_t>& v) {
    io::FlatWriter o;
    for (size_t i = 0; i < v.size(); ++i) o.add<int32_t>(static_cast<int>(i), v[i]);
    return o;
  }

 private:
  /// What the options of an operator are to TFLite itself; Tandem goes by the operator.
  static uint8_t kind_of(int code) {
    constexpr std::pair<int, uint8_t> kKinds[] = {
        {0, 11},  {1, 5},   {3, 1},    {4, 2},     {9, 8},     {11, 12},  {17, 5},
        {18, 21}, {25, 9},  {31, 16},  {40, 27},   {42, 29},   {44, 71},  {74, 27},
        {81, 27}, {98, 75}, {118, 92}, {129, 103}, {142, 111}, {150, 116}};
    for (const auto& [c, kind] : kKinds)
      if (c == code) return kind;
    return 0;
  }
  int add_tensor(const std::string& name, Type type, const std::vector<int32_t>& shape,
                 uint32_t buffer, const std::vector<float>& scales,
                 const std::vector<int64_t>& zeros, int32_t axis) {
    io::FlatWriter t, q;
    t.add_numbers(0, shape);
    t.add<int8_t>(1, type);
    t.add<uint32_t>(2, buffer);
    t.add_text(3, name);
    if (!scales.empty()) {
      q.add_numbers(2, scales);
      q.add_numbers(3, zeros);
      q.add<int32_t>(6, axis);
      t.add_table(4, std::move(q));
    }
    t.add<uint8_t>(8, 1);
    tensors_.push_back(std::move(t));
    return static_cast<int>(tensors_.size()) - 1;
  }
  std::vector<io::FlatWriter> buffers_, codes_, tensors_, ops_, graphs_, signatures_;
};

/// A network of the usual kind: convolution, depthwise convolution, pool, matrix, softmax.
inline std::string tflite_network() {
  TfliteFile f;
  const auto numbers = [](size_t n) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = 0.25f * static_cast<float>(i * 7 % 11) - 1;
    return v;
  };
  const int x = f.tensor("x", TfliteFile::f32, {1, 5, 5, 2});
  const int w = f.constant("w", TfliteFile::f32, {3, 3, 3, 2}, numbers(54));
  const int b = f.constant("b", TfliteFile::f32, {3}, numbers(3));
  const int y = f.tensor("y", TfliteFile::f32, {1, 3, 3, 3});
  const int dw = f.constant("dw", TfliteFile::f32, {1, 2, 2, 3}, numbers(12));
  const int z = f.tensor("z", TfliteFile::f32, {1, 3, 3, 3});
  const int p = f.tensor("p", TfliteFile::f32, {1, 2, 2, 3});
  const int m = f.constant("m", TfliteFile::f32, {4, 12}, numbers(48));
  const int r = f.tensor("r", TfliteFile::f32, {1, 4});
  const int s = f.tensor("s", TfliteFile::f32, {1, 4});
  f.op(3, {x, w, b}, {y}, TfliteFile::conv(0, 2, 1));
  f.op(4, {y, dw, b}, {z}, TfliteFile::depthwise(0, 1, 3));
  f.op(17, {z}, {p}, TfliteFile::pool(1, 1, 2));
  f.op(9, {p, m, -1}, {r}, TfliteFile::activation(0));
  f.op(25, {r}, {s}, TfliteFile::number(1));
  f.graph("main", {x}, {s});
  f.signature("serving_default", {{"image", static_cast<uint32_t>(x)}},
              {{"shares", static_cast<uint32_t>(s)}});
  return f.bytes();
}

/// The same kind of network on codes of 8 bits.
inline std::string tflite_codes() {
  TfliteFile f;
  const auto codes = [](size_t n) {
    std::vector<int8_t> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = static_cast<int8_t>(i * 37 % 255 - 127);
    return v;
  };
  const int x = f.tensor("x", TfliteFile::i8, {1, 5, 5, 2}, {0.02f}, {-3});
  const int w = f.constant("w", TfliteFile::i8, {3, 3, 3, 2}, codes(54), {0.01f, 0.02f, 0.005f},
                           {0, 0, 0}, 0);
  const int b = f.constant<int32_t>("b", TfliteFile::i32, {3}, {100, -2000, 7});
  const int y = f.tensor("y", TfliteFile::i8, {1, 3, 3, 3}, {0.05f}, {4});
  const int dw = f.constant("dw", TfliteFile::i8, {1, 2, 2, 3}, codes(12), {0.01f}, {0});
  const int z = f.tensor("z", TfliteFile::i8, {1, 3, 3, 3}, {0.07f}, {-20});
  const int a = f.tensor("a", TfliteFile::i8, {1, 3, 3, 3}, {0.1f}, {5});
  const int p = f.tensor("p", TfliteFile::i8, {1, 2, 2, 3}, {0.1f}, {5});
  const int m = f.constant("m", TfliteFile::i8, {4, 12}, codes(48), {0.03f}, {0});
  const int r = f.tensor("r", TfliteFile::i8, {1, 4}, {0.3f}, {1});
  const int s = f.tensor("s", TfliteFile::i8, {1, 4}, {1.0f / 256}, {-128});
  f.op(3, {x, w, b}, {y}, TfliteFile::conv(0, 2, 1));
  f.op(4, {y, dw, b}, {z}, TfliteFile::depthwise(0, 1, 3));
  f.op(0, {y, z}, {a}, TfliteFile::activation(0));
  f.op(1, {a}, {p}, TfliteFile::pool(1, 1, 2));
  f.op(9, {p, m, -1}, {r}, TfliteFile::activation(0));
  f.op(25, {r}, {s}, TfliteFile::number(1));
  f.graph("main", {x}, {y, z, a, p, r, s});
  return f.bytes();
}

/// Two branches, and a variable that counts calls.
inline std::string tflite_branches() {
  TfliteFile f;
  const int x = f.tensor("x", TfliteFile::f32, {2}),
            limit = f.constant<float>("limit", TfliteFile::f32, {}, {1});
  const int sum = f.tensor("sum", TfliteFile::f32, {}),
            axis = f.constant<int32_t>("axis", TfliteFile::i32, {1}, {0});
  const int large = f.tensor("large", TfliteFile::b8, {}), y = f.tensor("y", TfliteFile::f32, {2});
  const int handle = f.tensor("handle", TfliteFile::resource, {}),
            before = f.tensor("before", TfliteFile::f32, {2});
  const int after = f.tensor("after", TfliteFile::f32, {2});
  io::FlatWriter variable;
  variable.add_text(1, "total");
  f.op(129, {}, {}, TfliteFile::whole({3}));
  f.op(74, {x, axis}, {sum});
  f.op(61, {sum, limit}, {large});
  f.op(118, {large, x}, {y}, TfliteFile::whole({1, 2}));
  f.op(142, {}, {handle}, variable);
  f.op(143, {handle}, {before});
  f.op(0, {before, y}, {after}, TfliteFile::activation(0));
  f.op(144, {handle, after}, {});
  f.graph("main", {x}, {y, after});
  for (const int code : {92, 59}) {  // SQUARE, NEG
    const int a = f.tensor("a", TfliteFile::f32, {2}), b = f.tensor("b", TfliteFile::f32, {2});
    f.op(code, {a}, {b});
    f.graph(code == 92 ? "yes" : "no", {a}, {b});
  }
  const int h = f.tensor("h", TfliteFile::resource, {});
  const int first = f.constant<float>("first", TfliteFile::f32, {2}, {10, 20});
  f.op(142, {}, {h}, variable);
  f.op(144, {h, first}, {});
  f.graph("start", {}, {});
  return f.bytes();
}

/// One unit, h = relu(2 x - h before + 1), over three steps, or two of them in both directions.
inline std::string tflite_recurrent(bool both) {
  TfliteFile f;
  const int x = f.tensor("x", TfliteFile::f32, {1, 3, 1});
  const int w = f.constant<float>("w", TfliteFile::f32, {1, 1}, {2}),
            r = f.constant<float>("r", TfliteFile::f32, {1, 1}, {-1}),
            b = f.constant<float>("b", TfliteFile::f32, {1}, {1});
  std::vector<int32_t> in = {x}, out;
  for (int k = 0; k < 1 + both; ++k) {
    const int h = f.tensor(k ? "back" : "h", TfliteFile::f32, {1, 1});
    f.variable(h);
    in.insert(in.end(), {w, r, b, h});
    out.push_back(f.tensor(k ? "z" : "y", TfliteFile::f32, {1, 3, 1}));
  }
  io::FlatWriter options;
  options.add<uint8_t>(0, 0);
  options.add<int8_t>(1, 1);
  f.op(both ? 46 : 35, in, out, options);
  f.graph("main", {x}, out);
  return f.bytes();
}

}  // namespace tandem::onnx
