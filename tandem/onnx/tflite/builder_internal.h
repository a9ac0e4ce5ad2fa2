// SPDX-License-Identifier: Apache-2.0
// A .tflite model as a graph of the importer. Operators become nodes of TensorFlow's and ONNX's ops
// by the rows of a table; those that compute with codes in a way of their own are rows of the
// domain "tflite". Operators stand in the order in which they run; a variable's value is followed
// from one to the next, and one that is written becomes a state.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tandem/onnx/import/build_internal.h"
#include "tandem/onnx/model.h"
#include "tandem/onnx/tflite/model_internal.h"

namespace tandem::onnx {

class TfliteBuilder;
struct TfliteCall;

/// What an operator does with codes.
enum class TfliteCodes : uint8_t {
  numbers,  ///< computes with the numbers that codes stand for, and rounds the result
  moved,    ///< moves codes, or compares them, where all have the same scales
  any,      ///< does not look at them
};

/// How one of the schema's operators becomes nodes.
struct TfliteRow {
  int code;
  const char* name;
  void (*build)(TfliteCall&);
  const char* node = nullptr;  ///< of a row that is TensorFlow's op of this name
  int activation = -1;         ///< the options' field with a fused activation
  TfliteCodes codes = TfliteCodes::numbers;
  /// Computes codes from codes, as TFLite's reference kernels do; false: not those of this call.
  bool (*exact)(TfliteCall&) = nullptr;
  /// In place of `build` for a graph of TensorFlow.js, if that gives nodes which are not its ops.
  void (*graph)(TfliteCall&) = nullptr;
};

/// One run of a subgraph: where its tensors' values are.
struct TfliteScope {
  const TfliteGraph& graph;
  std::vector<std::string> values;         ///< "": not computed yet
  std::map<size_t, std::string> resource;  ///< tensors that are variables, by name
};

/// An operator that is being built.
struct TfliteCall {
  TfliteBuilder& b;
  TfliteScope& scope;
  const TfliteOp& op;
  const TfliteRow& row;
  /// Codes are turned into numbers first, and results into codes.
  bool as_numbers = false;

  bool has(size_t i) const { return i < op.in.size() && op.in[i] >= 0; }
  /// Input i; throws Format where it is absent.
  const TfliteTensor& tensor(size_t i) const;
  const TfliteTensor& result(size_t i) const;
  /// The name of its value, and of all that there are.
  std::string x(size_t i) const;
  std::vector<std::string> all() const;
  /// Whether input i is a constant, and its numbers.
  bool is_constant(size_t i) const;
  /// Input i in f32, and with its dimensions in another order; constants at once.
  std::string wide(size_t i) const;
  std::string turned(size_t i, const std::vector<int64_t>& order) const;
  /// SAME or VALID.
  const char* padding(int field) const;
  OnnxValue constant(size_t i) const;
  std::vector<int64_t> ints(size_t i) const;
  int64_t option(int field, int64_t otherwise = 0) const {
    return op.options.number<int32_t>(field, static_cast<int32_t>(otherwise));
  }
  bool flag(int field) const { return op.options.number<uint8_t>(field) != 0; }
  int64_t small(int field) const { return op.options.number<int8_t>(field); }
  float real(int field) const { return op.options.number<float>(field); }

  /// A node of the domain; its first result.
  std::string tf(const char* op, Names in, OnnxAttributes attributes = {}) const;
  std::string onnx(const char* op, Names in, OnnxAttributes attributes = {}) const;
  std::string own(const char* op, Names in, OnnxAttributes attributes = {}) const;
  Names many(const char* op, const char* domain, Names in, size_t out,
             OnnxAttributes attributes = {}) const;
  std::string number(double v, OnnxType type = OnnxType::f32) const;
  std::string list(const std::vector<int64_t>& v) const;
  /// The result i, after the fused activation.
  void set(size_t i, std::string name) const;
  /// The result i of a row that has clamped it.
  void set_codes(size_t i, std::string name) const;
  std::string activated(std::string name, int64_t activation) const;
  /// Within what the codes of result i reach.
  std::string in_range(size_t i, std::string name) const;
  [[noreturn]] void lacks(const std::string& what) const;
};

/// All rows, family by family.
std::vector<std::span<const TfliteRow>> tflite_rows();
std::span<const TfliteRow> tflite_plain_rows();
std::span<const TfliteRow> tflite_layer_rows();
std::span<const TfliteRow> tflite_recurrent_rows();
std::span<const TfliteRow> tflite_shape_rows();
std::span<const TfliteRow> tflite_control_rows();
std::span<const TfliteRow> tflite_custom_rows();
constexpr int kTfliteCustom = 32;  ///< rows of this code go by their name
const TfliteRow* find_tflite_row(const TfliteOp& op);

/// Attributes by which an ONNX convolution reads its window; `stride`, `dilation`: the options'
/// fields of the width, those of the height follow.
OnnxAttributes tflite_window(const TfliteCall& c, int stride, int dilation, int64_t group);
/// Of a convolution, its groups and the order of dimensions that turns its filter into ONNX's.
int64_t tflite_groups(const TfliteCall& c);
/// The size of a tensor's dimension; throws Format unless it has `rank` of them and that one is
/// there.
int64_t tflite_size(const TfliteCall& c, const TfliteTensor& t, size_t rank, size_t d);

// ---- rows that compute codes (ops_codes.cpp)
bool tflite_conv_codes(TfliteCall& c);
bool tflite_matrix_codes(TfliteCall& c);
bool tflite_sum_codes(TfliteCall& c);
bool tflite_product_codes(TfliteCall& c);
bool tflite_average_codes(TfliteCall& c);
bool tflite_rescaled_codes(TfliteCall& c);
bool tflite_leaky_codes(TfliteCall& c);
bool tflite_absolute_codes(TfliteCall& c);
bool tflite_transposed_codes(TfliteCall& c);
bool tflite_batch_codes(TfliteCall& c);
bool tflite_resized_codes(TfliteCall& c);
bool tflite_hard_swish_codes(TfliteCall& c);
bool tflite_lstm_codes(TfliteCall& c);
bool tflite_curve_codes(TfliteCall& c);
bool tflite_softmax_codes(TfliteCall& c);
bool tflite_raw_codes(TfliteCall& c);
bool tflite_raw_signed(TfliteCall& c);
bool tflite_raw_shorts(TfliteCall& c);
bool tflite_reduced_codes(TfliteCall& c);
bool tflite_product_of_codes(TfliteCall& c);
bool tflite_squared_codes(TfliteCall& c);
bool tflite_prelu_codes(TfliteCall& c);
bool tflite_compared_codes(TfliteCall& c);
bool tflite_softmax_bytes(TfliteCall& c);
bool tflite_unit_codes(TfliteCall& c);
bool tflite_memory_codes(TfliteCall& c);
bool tflite_quotient_codes(TfliteCall& c);
// tables (ops_tables.cpp)
bool tflite_exp_codes(TfliteCall& c);
bool tflite_log_codes(TfliteCall& c);
bool tflite_elu_codes(TfliteCall& c);
bool tflite_gelu_codes(TfliteCall& c);
bool tflite_sigmoid_bytes(TfliteCall& c);
bool tflite_tanh_bytes(TfliteCall& c);
bool tflite_sqrt_codes(TfliteCall& c);
bool tflite_rsqrt_codes(TfliteCall& c);

// ---- rows as ops of TensorFlow.js (ops_graph.cpp)
void tflite_graph_conv(TfliteCall& c);
void tflite_graph_depthwise(TfliteCall& c);
void tflite_graph_matrix(TfliteCall& c);
void tflite_graph_gelu(TfliteCall& c);
void tflite_graph_hard_swish(TfliteCall& c);
void tflite_graph_prelu(TfliteCall& c);

/// The schema's name of an operator.
std::string tflite_name(const TfliteOp& op);

class TfliteBuilder {
 public:
  /// `for_graph`: nodes of TensorFlow.js's ops alone, on real numbers: those that codes stand for,
  /// within the codes' range.
  TfliteBuilder(const TfliteModel& model, std::string what, bool for_graph = false)
      : file_(model), what_(std::move(what)), for_graph_(for_graph) {}
  /// The graph of a subgraph. `signature`: what its ports are called, or nullptr.
  OnnxModelProto run(uint32_t graph, const TfliteSignature* signature);

  // ---- for rows
  const std::string& what() const { return what_; }
  bool for_graph() const { return for_graph_; }
  [[noreturn]] void fail(const std::string& reason) const;
  const TfliteModel& file() const { return file_; }
  Names node(const char* op, const char* domain, Names in, size_t out, OnnxAttributes attributes,
             const std::string& name);
  std::string constant(const std::string& wanted, OnnxValue v);
  std::string unique(const std::string& wanted);
  /// A tensor's value in codes or, with `as_numbers`, what they stand for.
  std::string value(TfliteScope& s, int32_t tensor, bool as_numbers);
  void set_value(TfliteScope& s, int32_t tensor, std::string name, bool from_numbers);
  /// The results of a subgraph for values of its inputs.
  Names call(uint32_t graph, const Names& inputs);
  /// The nodes that f adds, as a graph for an attribute; f returns its outputs.
  std::shared_ptr<OnnxGraph> subgraph(FunctionRef<Names(OnnxGraph&)> f);
  OnnxPort port(const std::string& name) const;

  struct Variable {
    std::string value;  ///< now; "": it has none yet
    OnnxValue first;    ///< its value before the first call
    TfliteTensor like;  ///< what holds it
    std::string input;  ///< the name of the state
    bool written = false;
  };
  std::map<std::string, Variable> variables;
  /// Values of variables, which a branch may replace.
  std::string read(const std::string& variable);
  void write(const std::string& variable, const std::string& value, const TfliteTensor& like);
  bool starting = false;  ///< in a graph that gives variables their first values
  /// Whether a value is a constant of the model.
  const OnnxValue* constant_of(const std::string& name) const;

 private:
  void run_ops(TfliteScope& s);
  void check_nodes(const TfliteOp& op, size_t from);
  void check_graph() const;
  void check_known() const;
  void count_unknown(uint32_t graph, std::set<uint32_t>& seen,
                     std::map<std::string, int64_t>& found) const;
  OnnxPort port_of(const TfliteTensor& t, const std::string& name) const;
  void add_states();
  OnnxGraph& graph() { return *stack_.back(); }

  const TfliteModel& file_;
  const std::string what_;
  const bool for_graph_;
  std::map<std::string, int64_t> foreign_;  ///< operators with nodes that a graph has no ops for
  OnnxModelProto model_;
  std::vector<OnnxGraph*> stack_;
  std::set<std::string> used_;
  std::map<std::string, size_t> constant_at_;
  std::map<std::string, std::string> numbers_;  ///< of codes: what they stand for
  int depth_ = 0;
};

}  // namespace tandem::onnx
