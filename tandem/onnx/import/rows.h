// SPDX-License-Identifier: Apache-2.0
// One row per ONNX op without an equivalent op of ours (those have their ONNX name in the op
// table): {domain, name, first and last opset, import, signature, op of ours, export}. `import`
// reads a call's inputs and attributes and sets its outputs with public ops; what a node holds
// beyond the signature is an error. `exporter` expresses `op` in ONNX nodes. A row without a name
// is an op of ours that takes several nodes. Each family has a file in import/, and its exporters
// one in export/.
#pragma once

#include <optional>
#include <span>

#include "tandem/onnx/model.h"

namespace tandem::onnx {

struct OnnxFrame;  // onnx_run.cpp

/// The single element of a condition; throws Shape for another number of elements, and for a hidden
/// value what OnnxCall's reads throw.
TD_API bool onnx_flag(const OnnxValue& v);

/// A node that is being run.
class TD_API OnnxCall {
 public:
  OnnxCall(const OnnxNode& node, OnnxFrame& frame) : node_(node), frame_(frame) {}

  const OnnxNode& node() const { return node_; }
  int64_t version() const { return node_.version; }
  OnnxFrame& frame() const { return frame_; }

  // ---- inputs
  std::vector<OnnxValue> in;
  bool has(size_t i) const { return i < in.size() && !in[i].is_none(); }
  /// Throws Value if the input is absent.
  const OnnxValue& value(size_t i) const;
  /// The tensor in its carrier; in a trace, captured values become constants.
  Tensor x(size_t i) const;
  /// x(i), or an undefined tensor.
  Tensor x_or_none(size_t i) const { return has(i) ? x(i) : Tensor(); }
  OnnxType type(size_t i) const { return value(i).type(); }
  /// Whether the value cannot be read: it belongs to a trace.
  bool hidden(size_t i) const;
  /// Reads of settings. Of a hidden value they throw Unsupported, and an OnnxRunner that traces the
  /// model learns which inputs would have to be known. ints(): of an integer tensor; numbers(), and
  /// flags() of conditions: an absent input has none.
  std::vector<int64_t> ints(size_t i) const;
  std::vector<double> numbers(size_t i) const;
  std::vector<bool> flags(size_t i) const;
  int64_t int_at(size_t i) const;
  double number(size_t i) const;
  /// The single element of a condition.
  bool flag(size_t i) const;

  // ---- attributes
  const OnnxAttribute* attribute(std::string_view name) const;
  int64_t attr(std::string_view name, int64_t otherwise) const;
  double attr_float(std::string_view name, double otherwise) const;
  std::string attr_text(std::string_view name, std::string_view otherwise = "") const;
  /// A text that is one of `choices`; throws Unsupported for any other.
  std::string attr_choice(std::string_view name, std::string_view otherwise,
                          std::initializer_list<std::string_view> choices) const;
  std::vector<int64_t> attr_ints(std::string_view name, std::vector<int64_t> otherwise = {}) const;
  std::vector<float> attr_floats(std::string_view name, std::vector<float> otherwise = {}) const;
  std::vector<std::string> attr_texts(std::string_view name,
                                      std::vector<std::string> otherwise = {}) const;
  /// Dims from an input (i) or, in older opsets, an attribute; nothing if both are absent.
  std::optional<std::vector<int64_t>> dims_from(size_t i, std::string_view name) const;
  /// An attribute that is an axis, made non-negative.
  int axis(std::string_view name, int64_t otherwise, int rank) const;

  // ---- outputs
  std::vector<OnnxValue> out;
  bool wants(size_t i) const { return i < node_.outputs.size() && !node_.outputs[i].empty(); }
  /// Set output i; absent ones are dropped.
  void set(size_t i, OnnxValue v);
  void set(size_t i, Tensor t, OnnxType type) { set(i, OnnxValue(std::move(t), type)); }
  /// A result of arithmetic in input 0's type: wrapped back into its range.
  void set_like(size_t i, Tensor t, size_t input = 0);

  // ---- graphs in attributes
  const OnnxGraph& graph(std::string_view name) const;
  std::vector<OnnxValue> run_graph(const OnnxGraph& graph, std::vector<OnnxValue> inputs) const;

 private:
  /// The tensor of a setting.
  const Tensor& setting(size_t i) const;
  const OnnxNode& node_;
  OnnxFrame& frame_;
};

constexpr int kOnnxAny = 1 << 20;  ///< any number

/// What a node of an op may hold.
struct OnnxSignature {
  int in = kOnnxAny, out = kOnnxAny;  ///< at most this many inputs and outputs
  /// The attributes that `import` reads, separated by blanks. Those after '~' are hints: whatever
  /// they say, the result is the same.
  const char* attributes = nullptr;
};

using OnnxImport = void (*)(OnnxCall&);
struct OnnxExportCall;  // onnx_build_internal.h
/// Adds nodes and sets the results; false: this call has no such form (its body may have one).
using OnnxExport = bool (*)(OnnxExportCall&);

struct OnnxRow {
  const char* domain;
  const char* name;  ///< "": only exported
  int since;         ///< first opset of the domain
  int last;          ///< last one; 0: no end
  OnnxImport import;
  OnnxSignature signature;
  const OpDef* op = nullptr;
  OnnxExport exporter = nullptr;
  /// Inputs from this one on are settings (sizes, limits) or statistics: no gradient is needed
  /// through them.
  int settings_from = 1 << 20;
  /// Draws random numbers: every run of the node gives others.
  bool draws = false;
  /// In a trace the node stays where its inputs are constants: compile() has a use for them.
  bool stays = false;
};
constexpr OnnxRow staying(OnnxRow row) {
  row.stays = true;
  return row;
}
constexpr OnnxRow drawing(OnnxRow row) {
  row.draws = true;
  return row;
}
/// A row whose inputs from `first` on are settings.
constexpr OnnxRow settings_from(int first, OnnxRow row) {
  row.settings_from = first;
  return row;
}
/// The row of an op without an ONNX op.
constexpr OnnxRow exported(const OpDef& op, OnnxExport f) {
  return {"", "", 0, 0, nullptr, {}, &op, f};
}

/// Our own domain: its ops are the rows of the op table, by name.
inline constexpr const char* kOnnxTandem = "tandem";
inline constexpr const char *kOnnxMl = "ai.onnx.ml", *kOnnxPreview = "ai.onnx.preview",
                            *kOnnxTraining = "ai.onnx.preview.training",
                            *kOnnxMicrosoft = "com.microsoft";
/// Nodes of TensorFlow's graphs, by TensorFlow's names; their rows are in tensorflow/.
inline constexpr const char* kOnnxTf = "tf";
/// Nodes of Keras's files that no op of ONNX or TensorFlow expresses, by the names of its layers.
inline constexpr const char* kOnnxKeras = "keras";
/// What TFLite computes with codes in a way of its own; rows are in tflite/.
inline constexpr const char* kOnnxTflite = "tflite";
/// Whether a domain is one of the three: graphs of TensorFlow are not ONNX files.
inline bool is_tensorflow_domain(std::string_view domain) {
  return domain == kOnnxTf || domain == kOnnxKeras || domain == kOnnxTflite;
}

/// A domain and the last of its opsets whose ops are known here.
struct OnnxDomain {
  const char* name;
  int64_t last;
};
TD_API std::span<const OnnxDomain> onnx_domains();

// ---- families, one file each
TD_API std::span<const OnnxRow> onnx_math_rows();
TD_API std::span<const OnnxRow> onnx_activation_rows();
TD_API std::span<const OnnxRow> onnx_cast_rows();
TD_API std::span<const OnnxRow> onnx_shape_rows();
TD_API std::span<const OnnxRow> onnx_create_rows();
TD_API std::span<const OnnxRow> onnx_index_rows();
TD_API std::span<const OnnxRow> onnx_reduce_rows();
TD_API std::span<const OnnxRow> onnx_matmul_rows();
TD_API std::span<const OnnxRow> onnx_conv_rows();
TD_API std::span<const OnnxRow> onnx_pool_rows();
TD_API std::span<const OnnxRow> onnx_norm_rows();
TD_API std::span<const OnnxRow> onnx_attention_rows();
TD_API std::span<const OnnxRow> onnx_linear_attention_rows();
TD_API std::span<const OnnxRow> onnx_quant_rows();
TD_API std::span<const OnnxRow> onnx_quant_op_rows();
TD_API std::span<const OnnxRow> onnx_packed_rows();
TD_API std::span<const OnnxRow> onnx_expert_rows();
TD_API std::span<const OnnxRow> onnx_fused_attention_rows();
TD_API std::span<const OnnxRow> onnx_rnn_rows();
TD_API std::span<const OnnxRow> onnx_control_rows();
TD_API std::span<const OnnxRow> onnx_sequence_rows();
TD_API std::span<const OnnxRow> onnx_string_rows();
TD_API std::span<const OnnxRow> onnx_training_rows();
TD_API std::span<const OnnxRow> onnx_loss_rows();
TD_API std::span<const OnnxRow> onnx_signal_rows();
TD_API std::span<const OnnxRow> onnx_vision_rows();
TD_API std::span<const OnnxRow> onnx_resize_rows();
TD_API std::span<const OnnxRow> onnx_random_rows();
TD_API std::span<const OnnxRow> onnx_image_rows();
TD_API std::span<const OnnxRow> onnx_ml_rows();
TD_API std::span<const OnnxRow> onnx_tf_pointwise_rows();
TD_API std::span<const OnnxRow> onnx_tf_math_rows();
TD_API std::span<const OnnxRow> onnx_tf_shape_rows();
TD_API std::span<const OnnxRow> onnx_tf_index_rows();
TD_API std::span<const OnnxRow> onnx_tf_conv_rows();
TD_API std::span<const OnnxRow> onnx_tf_linalg_rows();
TD_API std::span<const OnnxRow> onnx_tf_segment_rows();
TD_API std::span<const OnnxRow> onnx_keras_rows();
TD_API std::span<const OnnxRow> onnx_tflite_rows();

/// All rows of all families.
TD_API std::vector<std::span<const OnnxRow>> onnx_rows();
/// The row for an op of an opset, or nullptr.
TD_API const OnnxRow* find_onnx_row(std::string_view domain, std::string_view name,
                                    int64_t version);
/// The op of ours equivalent to this ONNX op (domain ai.onnx, opset 7 or later), or nullptr.
TD_API const OpDef* find_onnx_op(std::string_view name);
/// What the node holds that nothing here reads: attributes that its op does not have, too many
/// inputs or outputs. "" if there is no such thing, or if the op itself is unknown.
TD_API std::string unread_of(const OnnxNode& node);
/// Run such an op.
TD_API void run_direct(OnnxCall& call, const OpDef& op);
/// Run an op of our own domain: any row, with its attributes by name.
TD_API void run_own(OnnxCall& call, const OpDef& op);

/// A shape requested by a model. Throws Shape for negative sizes, Memory for more than 2^34
/// elements, Format where the open Budget has no room for them.
TD_API Shape onnx_shape(const std::vector<int64_t>& sizes);
TD_API void check_onnx_size(const Shape& shape, uint64_t element_bytes = 1);
/// Charges a loop of `steps` on the host to the open Budget; checks that it may hold that many
/// bytes for each step.
TD_API void check_onnx_loop(double steps, uint64_t bytes_each = 0);
/// Pads, repeats, strides or axes from a model. Throws Value for a number beyond +-2^28.
TD_API IntList onnx_list(const std::vector<int64_t>& numbers);
/// Just the check, for lists of any length.
TD_API void check_onnx_list(const std::vector<int64_t>& numbers);

}  // namespace tandem::onnx
