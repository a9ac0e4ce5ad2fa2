// SPDX-License-Identifier: Apache-2.0
// A .tflite file from a graph of ONNX nodes whose sizes are all known. Images of ONNX have their
// channels first, those of TFLite last: a value may be there in both orders, operators take the one
// that suits them, and what works element by element keeps the order that it is given.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/io/flatbuffer.h"
#include "tandem/onnx/model.h"
#include "tandem/onnx/tflite/model_internal.h"

namespace tandem::onnx {

using TfliteShape = std::vector<int64_t>;

/// An operator's options: the schema's union and fields.
struct TfliteOptions {
  uint8_t kind = 0;
  io::FlatWriter fields = {};
  int activation = -1;  ///< the field of a fused activation
  int version = 1;
  const char* custom = "";  ///< the name of an operator that is not in the schema
};

/// What is to read the file, which errors name: TFLite's interpreter, or the export to
/// TensorFlow.js.
enum class TfliteTarget : uint8_t { tflite, tfjs };

class TfliteWriter {
 public:
  /// `values`: what a run gave for every value; the model's initializers count as known.
  TfliteWriter(const OnnxModelProto& model, std::map<std::string, OnnxValue> values,
               TfliteTarget target = TfliteTarget::tflite);
  std::string run();

  // ---- values
  const TfliteShape& shape(const std::string& name) const { return shapes_.at(name); }
  OnnxType type(const std::string& name) const { return types_.at(name); }
  bool is_known(const std::string& name) const { return known_.count(name) > 0; }
  bool for_tflite() const { return target_ == TfliteTarget::tflite; }
  /// Of a known value.
  Tensor tensor(const std::string& name) const { return known_.at(name).tensor(); }
  std::vector<int64_t> ints(const std::string& name) const;
  /// Its tensor in ONNX's order, or with channels last ([n, h, w, c]).
  int plain(const std::string& name);
  int last(const std::string& name);
  /// Whether it is there with channels last alone.
  bool prefers_last(const std::string& name) const;
  void set(const std::string& name, int tensor, bool last = false);

  // ---- operators
  /// The result of an operator of one.
  int op(int code, std::vector<int> in, const TfliteShape& shape, OnnxType type,
         TfliteOptions options = {});
  std::vector<int> op_of_many(int code, std::vector<int> in, const std::vector<TfliteShape>& shapes,
                              OnnxType type, TfliteOptions options = {});
  int constant(const Tensor& t);
  int constant(const std::vector<int64_t>& v);  ///< of int32
  int constant(float v);
  int transposed(int tensor, const std::vector<int64_t>& order);
  int reshaped(int tensor, const TfliteShape& shape);
  const TfliteShape& shape_of(int tensor) const {
    return tensors_.at(static_cast<size_t>(tensor)).shape;
  }
  /// The one node that reads `name`, or nullptr; and that it needs no operators of its own.
  const OnnxNode* only_reader(const std::string& name) const;
  void leave_out(const OnnxNode* n) { left_out_.insert(n); }
  /// Puts an activation into the operator that gives `name`, if nothing else reads that.
  bool fuse(const std::string& name, int8_t activation, const std::string& result,
            int8_t before = 0);
  void fuse_into(int tensor, int8_t activation);
  [[noreturn]] void lacks(const OnnxNode& n, const std::string& what) const;

  // ---- codes (write_codes.cpp)
  /// A value that stands for another one's codes, and how.
  struct Codes {
    std::string codes;
    TfliteScales scales;
  };
  std::optional<Codes> codes_of(const std::string& name) const;
  /// The scale and the zero point of a QuantizeLinear or DequantizeLinear of activations, for int8.
  std::optional<TfliteScales> scales_of(const OnnxNode& n) const;
  /// `name` is what the codes stand for; it becomes floats where they are read.
  void stands_for(const std::string& name, const std::string& codes);
  /// The codes and scales that a known value was dequantised from.
  struct StoredCodes {
    Tensor codes;
    TfliteScales scales;
  };
  std::optional<StoredCodes> stored_codes(const std::string& name) const;
  void scaled(int tensor, const TfliteScales& scales) {
    tensors_.at(static_cast<size_t>(tensor)).scales = scales;
  }
  const TfliteScales& scales(int tensor) const {
    return tensors_.at(static_cast<size_t>(tensor)).scales;
  }

 private:
  void make_numbers(const std::string& name);
  const OnnxNode* maker(const std::string& name) const;
  struct Written {
    TfliteShape shape;
    OnnxType type = OnnxType::undefined;
    uint32_t buffer = 0;
    std::string name;
    TfliteScales scales = {};
  };
  struct Operator {
    int code = 0;
    std::vector<int> in, out;
    TfliteOptions options;
    int8_t fused = 0;
  };
  struct Places {
    int plain = -1, last = -1;
  };
  int add_tensor(const TfliteShape& shape, OnnxType type, uint32_t buffer);
  void find_known(std::map<std::string, OnnxValue>& values);
  std::string file(const std::vector<int>& inputs, const std::vector<int>& outputs) const;

  const OnnxModelProto& model_;
  const TfliteTarget target_;
  std::map<std::string, TfliteShape> shapes_;
  std::map<std::string, OnnxType> types_;
  std::map<std::string, OnnxValue> known_;
  std::map<std::string, Places> places_;
  std::map<std::string, int> reads_;
  std::map<int, size_t> made_by_;
  std::map<int, std::vector<std::string>> names_;  ///< of values that are the tensor
  std::set<const OnnxNode*> left_out_;
  std::map<std::string, Codes> numbers_of_;
  std::map<std::string, const OnnxNode*> makers_;
  std::vector<Written> tensors_;
  std::vector<std::string> buffers_;
  std::vector<Operator> ops_;
};

/// A node that is being written.
struct TfliteNode {
  TfliteWriter& w;
  const OnnxNode& n;
  bool has(size_t i) const { return i < n.inputs.size() && !n.inputs[i].empty(); }
  const std::string& in(size_t i) const {
    if (!has(i)) w.lacks(n, "an absent input");
    return n.inputs[i];
  }
  const std::string& out(size_t i = 0) const { return n.outputs[i]; }
  int64_t attr(const char* name, int64_t otherwise) const;
  float number(const char* name, float otherwise) const;
  std::string text(const char* name, const char* otherwise) const;
  /// A list from an attribute or, where there is none, from input i.
  std::vector<int64_t> list(const char* name, size_t i = 1000) const;
  /// An axis of input 0, not negative.
  int64_t axis(int64_t a) const;
};

using TfliteWrite = void (*)(TfliteNode&);
/// How an ONNX op is written, or nullptr.
TfliteWrite find_tflite_write(std::string_view op);
std::vector<std::string> tflite_written_ops();
struct TfliteWriteRow {
  const char* op;
  TfliteWrite write;
};
std::vector<TfliteWriteRow> tflite_layer_writes();
std::vector<TfliteWriteRow> tflite_plain_writes();
std::vector<TfliteWriteRow> tflite_code_writes();
/// A node between codes as one operator of them; false: it has no such form.
bool write_as_codes(TfliteNode& n);
/// The bias of a matrix product: its third input, or what the only node that reads it adds.
struct WrittenBias {
  std::string name;                ///< "": there is none of `channels` known numbers
  std::string result;              ///< what the product with its bias is called
  const OnnxNode* adds = nullptr;  ///< the node that the bias stands in
};
WrittenBias tflite_bias(const TfliteNode& n, int64_t channels);
/// The options of a convolution by the node's window, and x [n, h, w, c] padded with `value`.
int tflite_conv_window(const TfliteNode& n, int x, std::vector<int64_t> kernel, bool depthwise,
                       int64_t multiplier, float value, TfliteOptions& options);
/// The same of a pool; false: padding has no such form.
bool tflite_pool_window(const TfliteNode& n, const std::string& x, bool largest,
                        TfliteOptions& options, int& padded);

}  // namespace tandem::onnx
