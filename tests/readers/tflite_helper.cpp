// SPDX-License-Identifier: Apache-2.0
// .tflite files for the table of readers: valid ones, changes to a flatbuffer's words, and files
// that ask for far more than they are worth.
#include <unistd.h>

#include "tandem/base/files/folder.h"
#include "tandem/onnx/tfjs_export.h"
#include "tests/onnx/tflite_builder.h"
#include "tests/readers/readers.h"

namespace tandem::readers {

using onnx::TfliteFile;

std::vector<std::string> tflite_seeds() {
  return {onnx::tflite_network(), onnx::tflite_branches(), onnx::tflite_codes(),
          onnx::tflite_recurrent(true)};
}

void convert_tflite(std::string_view bytes) {
  const std::string folder = "/dev/shm/tandem_readers_" + std::to_string(getpid()) + "_web";
  make_folders(folder);
  struct Remove {
    const std::string& folder;
    ~Remove() { remove_folder(folder); }
  } const remove{folder};
  write_file(folder + "/net.tflite", bytes);
  onnx::export_tfjs_file(folder + "/net.tflite", {}, folder + "/model.json");
}

void mutate_flatbuffer(std::string& s, Random& random) {
  if (s.size() < 16) return mutate_bytes(s, random);
  const uint64_t words = s.size() / 4;
  const size_t at = 4 * (random() % words), from = 4 * (random() % words);
  const auto put = [&](uint32_t v) { s.replace(at, 4, reinterpret_cast<const char*>(&v), 4); };
  switch (random() % 6) {
    case 0: {
      static constexpr uint32_t kWords[] = {0,          1,          2,          4,
                                            0x7fffffff, 0x80000000, 0xffffffff, 0x10000};
      return put(kWords[random() % std::size(kWords)]);
    }
    case 1:  // an offset to any place behind
      return put(static_cast<uint32_t>(random() % (s.size() - at)));
    case 2:
      return put(static_cast<uint32_t>(little(s, from, 4)));
    case 3:
      return put(static_cast<uint32_t>(little(s, at, 4) + random() % 9 - 4));
    case 4: {  // an entry of a table's list of fields
      const uint16_t v = static_cast<uint16_t>(random() % 64);
      s.replace(at + 2 * (random() % 2), 2, reinterpret_cast<const char*>(&v), 2);
      return;
    }
    default:
      s[at + random() % 4] = static_cast<char>(random());
  }
}

namespace {

/// Thirty subgraphs, each of which calls the next one twice.
std::string doubling_calls() {
  TfliteFile f;
  for (int i = 0; i < 30; ++i) {
    for (const char* name : {"a", "b", "c"}) f.tensor(name, TfliteFile::f32, {1});
    for (int k = 0; k < 2; ++k)
      if (i < 29)
        f.op(31, {k}, {k + 1}, TfliteFile::whole({i + 1}));
      else
        f.op(92, {k}, {k + 1});
    f.graph("g", {0}, {2});
  }
  return f.bytes();
}
/// A shape of 2^40 elements, filled.
std::string large_fill() {
  TfliteFile f;
  const int shape = f.constant<int32_t>("shape", TfliteFile::i32, {2}, {1 << 20, 1 << 20});
  const int value = f.constant<float>("value", TfliteFile::f32, {}, {1});
  const int y = f.tensor("y", TfliteFile::f32, {1});
  f.op(94, {shape, value}, {y});
  f.graph("main", {}, {y});
  return f.bytes();
}
/// A matrix of 2^31 zeros that a sparse tensor lists nothing of.
std::string large_sparse() {
  io::FlatWriter model, graph, op, code, sparse, tensor, result;
  std::vector<io::FlatWriter> dimensions(2);
  for (io::FlatWriter& d : dimensions) d.add<int32_t>(1, 0);
  sparse.add_numbers<int32_t>(0, {0, 1});
  sparse.add_tables(2, std::move(dimensions));
  tensor.add_numbers<int32_t>(0, {1 << 16, 1 << 15});
  tensor.add_text(3, "w");
  tensor.add<uint32_t>(2, 1);
  tensor.add_table(6, std::move(sparse));
  result.add_text(3, "y");
  std::vector<io::FlatWriter> tensors, buffers(2);
  tensors.push_back(std::move(tensor));
  tensors.push_back(std::move(result));
  buffers[1].add_bytes(0, "none", 16);
  op.add_numbers<int32_t>(1, {0});
  op.add_numbers<int32_t>(2, {1});
  code.add<int8_t>(0, 92);
  std::vector<io::FlatWriter> ops, codes, graphs;
  ops.push_back(std::move(op));
  graph.add_tables(0, std::move(tensors));
  graph.add_numbers<int32_t>(2, {1});
  graph.add_tables(3, std::move(ops));
  codes.push_back(std::move(code));
  graphs.push_back(std::move(graph));
  model.add<uint32_t>(0, 3);
  model.add_tables(1, std::move(codes));
  model.add_tables(2, std::move(graphs));
  model.add_tables(4, std::move(buffers));
  return model.finish("TFL3");
}

/// Codes whose scale is 0 put together, with a fused RELU6.
std::string scale_of_zero() {
  TfliteFile f;
  const int x = f.tensor("x", TfliteFile::i8, {2}, {0.0f}, {0}),
            y = f.tensor("y", TfliteFile::i8, {4}, {0.0f}, {0});
  io::FlatWriter options = TfliteFile::whole({0});
  options.add<int8_t>(1, 3);
  f.op(2, {x, x}, {y}, std::move(options));
  f.graph("main", {x}, {y});
  return f.bytes();
}

}  // namespace

void add_crafted_tflite(std::vector<Crafted>& all) {
  all.push_back({"calls", "tflite", doubling_calls, "over the limit"});
  all.push_back({"calls_to_tfjs", "tflite_to_tfjs", doubling_calls, "over the limit"});
  all.push_back({"scale_0", "tflite", scale_of_zero, "need a scale above 0"});
  all.push_back({"fill", "tflite", large_fill});
  all.push_back({"sparse", "tflite", large_sparse, "over the limit 'bytes'"});
  all.push_back({"sparse_to_tfjs", "tflite_to_tfjs", large_sparse, "over the limit 'bytes'"});
}

}  // namespace tandem::readers
