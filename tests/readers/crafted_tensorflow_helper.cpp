// SPDX-License-Identifier: Apache-2.0
// Graphs, saved models and checkpoints of TensorFlow, and models of Keras, that ask for far more
// than they are worth.
#include <fmt/core.h>

#include "tandem/io/protobuf.h"
#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

// ---- graphs

/// A GraphDef's node.
io::ProtoWriter tf_node(const std::string& name, const std::string& op,
                        const std::vector<std::string>& inputs, const std::string& function = "") {
  io::ProtoWriter n;
  n.add_bytes(1, name);
  n.add_bytes(2, op);
  for (const std::string& i : inputs) n.add_bytes(3, i);
  if (!function.empty()) {
    io::ProtoWriter f, value, entry;
    f.add_bytes(1, function);
    value.add_message(10, f);
    entry.add_bytes(1, "f");
    entry.add_message(2, value);
    n.add_message(5, entry);
  }
  return n;
}
/// Forty functions, each of which calls the next one twice.
std::string nested_calls() {
  io::ProtoWriter g, library;
  g.add_message(1, tf_node("x", "Placeholder", {}));
  g.add_message(1, tf_node("y", "PartitionedCall", {"x"}, "f0"));
  for (int i = 0; i < 40; ++i) {
    const std::string next = i < 39 ? "f" + std::to_string(i + 1) : "";
    io::ProtoWriter in, out, signature, f, result;
    in.add_bytes(1, "a");
    out.add_bytes(1, "r");
    signature.add_bytes(1, "f" + std::to_string(i));
    signature.add_message(2, in);
    signature.add_message(3, out);
    f.add_message(1, signature);
    const char* op = next.empty() ? "Relu" : "PartitionedCall";
    f.add_message(3, tf_node("b", op, {"a"}, next));
    f.add_message(3, tf_node("c", op, {next.empty() ? "b:activations:0" : "b:output:0"}, next));
    result.add_bytes(1, "r");
    result.add_bytes(2, next.empty() ? "c:activations:0" : "c:output:0");
    f.add_message(4, result);
    library.add_message(1, f);
  }
  g.add_message(2, library);
  return g.str();
}
/// One number that stands for 2^36 of them.
std::string large_constant() {
  io::ProtoWriter dim, shape, tensor, value, entry, node = tf_node("c", "Const", {}), g;
  dim.add_int(1, int64_t{1} << 36);
  shape.add_message(2, dim);
  tensor.add_int(1, 1);
  tensor.add_message(2, shape);
  tensor.add_float(5, 1);
  value.add_message(8, tensor);
  entry.add_bytes(1, "value");
  entry.add_message(2, value);
  node.add_message(5, entry);
  g.add_message(1, node);
  g.add_message(1, tf_node("y", "Relu", {"c"}));
  return g.str();
}

/// A SavedModel of a graph with the placeholder "x" and the result "y".
std::string saved_model(const std::string& graph, int signatures = 1) {
  io::ProtoWriter info, graph_def, meta, model;
  info.add_bytes(4, "serve");
  meta.add_message(1, info);
  meta.add_bytes(2, graph);
  for (int k = 0; k < signatures; ++k) {
    io::ProtoWriter signature, entry;
    for (const auto& [field, name] : {std::pair(1, "x"), std::pair(2, "y")}) {
      io::ProtoWriter port, named;
      port.add_bytes(1, name + std::string(":0"));
      port.add_int(2, 1);
      port.add_message(3, io::ProtoWriter());
      named.add_bytes(1, name);
      named.add_message(2, port);
      signature.add_message(field, named);
    }
    entry.add_bytes(1, k == 0 ? "pick" : fmt::format("s{}", k));
    entry.add_message(2, signature);
    meta.add_message(5, entry);
  }
  model.add_int(1, 1);
  model.add_message(2, meta);
  return model.str();
}
/// A chain of nodes, each of which adds the one before to itself.
std::string doubling_chain(int nodes) {
  io::ProtoWriter g;
  g.add_message(1, tf_node("x", "Placeholder", {}));
  for (int k = 0; k < nodes; ++k) {
    const std::string before = k == 0 ? "x" : fmt::format("n{}", k - 1);
    g.add_message(1,
                  tf_node(k + 1 == nodes ? "y" : fmt::format("n{}", k), "AddV2", {before, before}));
  }
  return g.str();
}

// ---- checkpoints: a sorted table of blocks

/// An entry that shares its key's first bytes with the key before.
std::string table_entry(uint64_t shared, std::string_view key, std::string_view value) {
  std::string s;
  for (const uint64_t n : {shared, uint64_t{key.size()}, uint64_t{value.size()}}) put_varint(s, n);
  return s.append(key).append(value);
}
std::string block_handle(uint64_t offset, uint64_t size) {
  std::string s;
  put_varint(s, offset);
  put_varint(s, size);
  return s;
}
/// A table of one block of entries, which the index names that many times; `kind` 1: compressed.
std::string table(std::string entries, int names = 1, char kind = '\0') {
  const std::string no_restarts = little_endian({{0, 4}}), trailer(5, '\0');
  if (kind == 0) entries += no_restarts;
  std::string s = entries + kind + std::string(4, '\0');
  const uint64_t meta = s.size();
  s += no_restarts + trailer;
  const uint64_t index = s.size();
  for (int k = 0; k < names; ++k) s += table_entry(0, "z", block_handle(0, entries.size()));
  s += no_restarts;
  const uint64_t index_size = s.size() - index;
  std::string footer = block_handle(meta, 4) + block_handle(index, index_size);
  footer.resize(40, '\0');
  s += trailer + footer + little_endian({{0xDB4775248B80FB57, 8}});
  repair_table(s);
  return s;
}
/// What a checkpoint says of a tensor of bytes.
std::string bundle_entry(int64_t elements, int64_t bytes) {
  io::ProtoWriter dim, shape, entry;
  dim.add_int(1, elements);
  shape.add_message(2, dim);
  entry.add_int(1, 4);
  entry.add_message(2, shape);
  entry.add_int(5, bytes);
  return entry.str();
}
const std::string& bundle_header() {
  static const std::string header = table_entry(0, "", std::string("\x08\x01", 2));
  return header;
}
/// Names that share all but their last bytes.
std::string shared_names() {
  std::string s = bundle_header() + table_entry(0, std::string(1 << 18, 'n'), bundle_entry(1, 1));
  for (uint64_t k = 0; k < 12000; ++k) {
    const std::string last = big_endian({{k + 0x10000, 3}});
    s += table_entry(1 << 18, last, bundle_entry(1, 1));
  }
  return table(s);
}

// ---- Keras

/// tests/onnx/tensorflow/line.h5, a whole model.
std::string weights_of_line() { return find_reader("hdf5_model").seeds()[0]; }
/// A model of Keras whose weights are those of another one.
std::string keras_file(const std::string& config, const std::string& weights) {
  return zip({{"metadata.json", R"({"keras_version": "3.0.0"})"},
              {"config.json", config, true},
              {"model.weights.h5", weights}});
}
std::string keras_layer(const std::string& kind, const std::string& fields, int k = 0) {
  return fmt::format(
      R"({{"module": "keras.layers", "class_name": "{}", "config": {{"name": "l{}", {}}}}})", kind,
      k, fields);
}
/// A sequential model of layers after an input of [4, 4, 2].
std::string keras_model(const std::string& layers) {
  const std::string config =
      R"({"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": [)" +
      keras_layer("InputLayer", R"("batch_shape": [null, 4, 4, 2], "dtype": "float32")") + ", " +
      layers + "]}}";
  return keras_file(config, weights_of_line());
}
std::string many_layers(int n) {
  std::string s;
  for (int k = 1; k <= n; ++k)
    s += (k > 1 ? ", " : "") + keras_layer("Activation", R"("activation": "relu")", k);
  return s;
}
/// Each layer makes its image larger by a factor.
std::string growing_layers(int n) {
  std::string s;
  for (int k = 1; k <= n; ++k)
    s += (k > 1 ? ", " : "") + keras_layer("UpSampling2D", R"("size": [64, 64])", k);
  return s;
}
/// The model of line.h5 with a text of its configuration exchanged for one that is no longer.
std::string line_with(std::string_view from, std::string to) {
  std::string s = weights_of_line();
  const size_t at = s.find(from);
  TD_CHECK(at != s.npos && to.size() <= from.size(), Internal, "line.h5 has no '{}'", from);
  to.resize(from.size(), ' ');
  return s.replace(at, from.size(), to);
}
constexpr std::string_view kDType =
    R"("dtype": {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, )"
    R"("registered_name": null}, )";

}  // namespace

void add_crafted_tensorflow(std::vector<Crafted>& all) {
  const auto add = [&](const char* reader, const char* name, auto bytes, const char* says = "") {
    all.push_back({std::string(reader) + "/" + name, reader, std::move(bytes), says});
  };
#define ADD(reader, name, expression, ...) \
  add(                                     \
      reader, name, [] { return std::string(expression); }, ##__VA_ARGS__)
  ADD("tf_graph", "calls", nested_calls(), "over the limit");
  ADD("tf_graph", "constant", large_constant(), "over the limit 'bytes'");
  ADD("saved_model", "calls", saved_model(nested_calls()), "over the limit");
  ADD("saved_model", "constant", saved_model(large_constant()), "over the limit 'bytes'");
  ADD("saved_model", "chain", saved_model(doubling_chain(20000)));
  ADD("saved_model", "signatures", saved_model(doubling_chain(1), 50000));
  ADD("checkpoint", "names", shared_names(), "over the limit 'bytes'");
  ADD("checkpoint", "blocks",
      table(bundle_header() + table_entry(0, std::string(1 << 20, 'n'), bundle_entry(1, 1)), 30000),
      "over the limit 'bytes'");
  ADD("checkpoint", "claims",
      table(bundle_header() +
            table_entry(0, "n", bundle_entry(int64_t{1} << 47, int64_t{1} << 47))));
  ADD("checkpoint", "compressed", table(std::string("\xff\xff\xff\x7f\0a", 6), 1, '\1'),
      "beyond what its bytes can hold");
  ADD("keras", "zeros",
      zip({{"config.json", "{}"}, {"model.weights.h5", std::string(1 << 20, '\0'), true, 400}}),
      "over the limit 'bytes'");
  ADD("keras", "members", zip(std::vector<Member>(60000, {"a", ""})));
  ADD("keras_model", "deep", keras_file(std::string(1 << 20, '['), weights_of_line()),
      "nested deeper");
  ADD("keras_model", "zeros",
      zip({{"config.json", std::string(1 << 20, ' '), true, 400}, {"model.weights.h5", "x"}}),
      "over the limit 'bytes'");
  ADD("keras_model", "padding",
      keras_model(keras_layer("ZeroPadding2D", R"("padding": [[1, 1099511627776], [1, 1]])")));
  ADD("keras_model", "repeats",
      keras_model(keras_layer("Flatten", R"("trainable": true)", 1) + ", " +
                  keras_layer("RepeatVector", R"("n": 4611686018427387904)", 2)));
  ADD("keras_model", "grows", keras_model(growing_layers(8)));
  ADD("keras_model", "layers", keras_model(many_layers(20000)));
  ADD("hdf5_model", "filters",
      line_with(std::string(kDType) + R"("filters": 3)", R"("filters": 4611686018427387904)"));
  ADD("hdf5_model", "kernel",
      line_with(R"("filters": 3, "kernel_size": [3], "strides": [1])",
                R"("kernel_size": [-9e18], "strides": [0])"));
  ADD("hdf5_model", "shape",
      line_with(R"("batch_shape": [null, 9, 8], "dtype": "float32", "sparse": false)",
                R"("batch_shape": [null, 4611686018427387904, 8])"));
  ADD("hdf5_model", "claims",
      line_with(little_endian({{3, 8}, {8, 8}, {3, 8}}),
                little_endian({{uint64_t{1} << 61, 8}, {8, 8}, {3, 8}})));
#undef ADD
}

}  // namespace tandem::readers
