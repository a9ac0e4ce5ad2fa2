// SPDX-License-Identifier: Apache-2.0
// Keras's own files: .keras archives and .h5 files with the architecture as JSON. Layers become
// nodes of the domain "tf" and of ONNX, so that they and SavedModels share the rows.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/io/tensorflow/keras_file.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"

namespace tandem::onnx {

bool is_keras_model(const FilePath& path);
OnnxModelProto read_keras_model(const FilePath& path);
/// Of an architecture and weights that are at hand.
OnnxModelProto build_keras_model(const io::KerasFile& file, const std::string& what);

/// The variables of a layer in the file. In archives a layer is a group by its class and place; in
/// the older layout every variable has a path that names its layers.
class KerasWeights {
 public:
  /// Of the older layout: its path, and a dataset or the value itself.
  struct Variable {
    std::string path;
    io::Hdf5File::Object dataset = 0;
    Tensor value = {};
  };
  using Names = std::vector<Variable>;
  KerasWeights(const io::KerasFile& file, io::Hdf5File::Object group, std::string path)
      : file_(file), group_(group), exists_(true), path_(std::move(path)) {}
  KerasWeights(const io::KerasFile& file, Names names, std::string path)
      : file_(file),
        by_name_(true),
        exists_(true),
        names_(std::move(names)),
        path_(std::move(path)) {}

  /// Variable i; throws Format where there is none.
  Tensor at(size_t i) const;
  /// A part of the layer: the attribute that holds it, and its name (older layout).
  KerasWeights child(const std::string& attribute, const std::string& name) const;
  bool by_name() const { return by_name_; }

 private:
  const std::string& file_name() const {
    return file_.weights ? file_.weights->name() : file_.name;
  }

  const io::KerasFile& file_;
  io::Hdf5File::Object group_ = 0;
  bool by_name_ = false, exists_ = false;
  Names names_;
  std::string path_;
};

/// A layer that is being built, with the values that it is called on.
struct KerasCall {
  const io::Json& config;
  std::string name, type;                  ///< the class
  std::vector<std::string> inputs;         ///< values
  std::vector<const io::Json*> arguments;  ///< of an operation, in order; nullptr: the next input
  std::vector<std::pair<std::string, std::string>> named;  ///< values by keyword
  std::vector<std::string> options;                        ///< keywords that are true
  int rank;  ///< of the input; 0: the file does not say
  KerasWeights weights;
  std::vector<std::pair<std::string, const io::Json*>> constants = {};  ///< numbers by keyword

  // ---- the configuration
  const io::Json* find(const char* key) const { return config.find(key); }
  double number(const char* key, double otherwise) const;
  int64_t whole(const char* key, int64_t otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const char* otherwise) const;
  /// A list of whole numbers, or one number `n` times.
  std::vector<int64_t> list(const char* key, size_t n, int64_t otherwise) const;
  /// A list of numbers, or one; none if there is no such entry.
  std::vector<double> numbers(const char* key) const;
  /// Whether a call sets this keyword.
  bool option(std::string_view key) const;
  /// Value i; throws Format where there is none.
  const std::string& in(size_t i = 0) const;
};

class KerasBuilder;
/// What becomes of a mask of time steps: it is kept, dropped, made by the layer, all inputs' masks
/// combined, or joined along an axis.
enum class KerasMask : uint8_t { kept, dropped, own, merged, joined };
/// With "channels_first" a layer cannot be called, is called on a transposed input, or gives a
/// result that has no channels to turn back (without "keepdims").
enum class KerasImages : uint8_t { none, turned, flat };
struct KerasLayer {
  std::vector<std::string> (KerasBuilder::*build)(const KerasCall&);
  KerasMask mask;
  KerasImages images = KerasImages::none;
  const char* takes = "";  ///< values by keyword, separated by blanks
  bool prepares = false;   ///< it prepares images, and is always called as in training
};

class KerasBuilder {
 public:
  KerasBuilder(const io::KerasFile& file, std::string what) : file_(file), what_(std::move(what)) {}
  OnnxModelProto run();

  using Values = std::vector<std::string>;

 private:
  using Tensors = std::map<std::string, std::string>;  ///< "layer/node/index" to value
  static const KerasLayer* find_layer(std::string_view type);

  // ---- models (keras_model.cpp)
  Values model(const io::Json& layer, const Values& inputs, const KerasWeights& weights);
  Values sequential(const io::Json& config, Values inputs, const KerasWeights& weights);
  Values functional(const io::Json& config, const Values& inputs, const KerasWeights& weights);
  void call_nodes(const io::Json& layer, const KerasWeights& weights, Tensors& tensors);
  Values call(const io::Json& layer, KerasCall& c);
  Values build(const KerasLayer& layer, KerasCall& c);
  Values call_images(const KerasLayer& layer, KerasCall& c);
  /// A layer that another one holds, by its entry in the configuration.
  Values call_inner(const KerasCall& c, const io::Json* layer, Values inputs, KerasWeights weights);
  void pass_mask(const KerasLayer& layer, const KerasCall& c, const Values& out);
  std::vector<KerasWeights> weights_of(const std::vector<io::Json>& layers,
                                       const KerasWeights& weights) const;
  std::string input(const io::Json& layer);
  void count_unknown(const io::Json& config, int depth);
  [[noreturn]] void fail(const std::string& why) const;

 public:
  [[noreturn]] void lacks(const KerasCall& c, const std::string& what) const;

  // ---- nodes
  std::string node(const KerasCall& c, const char* op, Values inputs,
                   OnnxAttributes attributes = {}, const char* domain = kOnnxTf);
  /// The same with an op of ONNX.
  std::string onnx(const KerasCall& c, const char* op, Values inputs,
                   OnnxAttributes attributes = {}) {
    return node(c, op, std::move(inputs), std::move(attributes), "");
  }
  std::string constant(const std::string& name, const Tensor& t);
  std::string numbers(const std::vector<int64_t>& v);
  std::string number(double v);
  /// A node with n results.
  Values several(const KerasCall& c, const char* op, Values inputs, OnnxAttributes attributes,
                 size_t n);
  /// A value by keyword, or entry `i` of a list by keyword; "": there is none.
  static std::string named_value(const KerasCall& c, std::string_view key, int i = -1);

 private:
  std::string activate(const KerasCall& c, const std::string& x, const io::Json* activation);
  std::string activate(const KerasCall& c, const std::string& x, const std::string& name,
                       const io::Json* config = nullptr);
  std::string bias(const KerasCall& c, const std::string& x, size_t i);
  /// The mask of input i: the one that the call names, or the one that the input carries; "": none.
  std::string mask_of(const KerasCall& c, size_t i = 0);
  /// The mask that a value carries; "": none.
  std::string carried_mask(const KerasCall& c, const std::string& value);
  std::string joined_mask(const KerasCall& c, const Values& inputs, int64_t axis);

  // ---- layers (keras_layers.cpp)
  Values same(const KerasCall& c);
  Values activation(const KerasCall& c);
  Values relu_layer(const KerasCall& c);
  Values prelu(const KerasCall& c);
  Values softmax_layer(const KerasCall& c);
  Values dense(const KerasCall& c);
  Values einsum_dense(const KerasCall& c);
  Values embedding(const KerasCall& c);
  std::string is_not(const KerasCall& c, const std::string& x, double v);
  Values masking(const KerasCall& c);
  Values wrapped(const KerasCall& c);
  Values pipeline(const KerasCall& c);
  Values conv(const KerasCall& c);
  Values depthwise(const KerasCall& c);
  Values separable(const KerasCall& c);
  Values conv_transpose(const KerasCall& c);
  Values pool(const KerasCall& c);
  Values global_pool(const KerasCall& c);
  Values batch_norm(const KerasCall& c);
  std::vector<int64_t> norm_axes(const KerasCall& c);
  Values layer_norm(const KerasCall& c);
  Values rms_norm(const KerasCall& c);
  Values group_norm(const KerasCall& c);
  Values unit_norm(const KerasCall& c);
  Values normalization(const KerasCall& c);
  Values rescaling(const KerasCall& c);
  Values scale(const KerasCall& c);
  Values zero_padding(const KerasCall& c);
  Values cropping(const KerasCall& c);
  Values up_sampling(const KerasCall& c);
  Values reshape(const KerasCall& c);
  Values flatten(const KerasCall& c);
  Values permute(const KerasCall& c);
  Values repeat_vector(const KerasCall& c);
  Values merge(const KerasCall& c);
  Values concatenate(const KerasCall& c);
  Values dot(const KerasCall& c);

  // ---- layers whose work depends on sizes: rows of the domain "keras" (keras_images.cpp)
  Values adaptive_pool(const KerasCall& c);
  Values resizing(const KerasCall& c);
  Values center_crop(const KerasCall& c);
  Values auto_contrast(const KerasCall& c);
  Values category_encoding(const KerasCall& c);
  Values discretization(const KerasCall& c);

  // ---- functions of keras.ops (keras_ops.cpp)
  static bool has_operation(std::string_view type);
  static bool is_operation(const io::Json& layer);
  Values operation(const KerasCall& c);

  // ---- recurrent layers (keras_recurrent.cpp)
  /// What a recurrent layer gives: [batch, time, units] in the order of the input, and its states.
  struct Steps {
    std::string all, last;
    Values states;
  };
  /// `cell`: the configuration of the cell, `c` that of the layer.
  Steps recurrent_steps(const KerasCall& c, const KerasCall& cell, const std::string& x,
                        const Values& initial, bool backwards);
  Steps cell_steps(const KerasCall& c, bool backwards);
  Values recurrent_outputs(const KerasCall& c, const Steps& s, bool backwards);
  Values initial_states(const KerasCall& c);
  OnnxAttributes cell_activations(const KerasCall& cell, size_t gates);
  Values recurrent(const KerasCall& c);
  Values conv_lstm(const KerasCall& c);
  Values bidirectional(const KerasCall& c);
  Values time_distributed(const KerasCall& c);

  // ---- attention (keras_attention.cpp)
  std::string projection(const KerasCall& c, const std::string& x, const KerasWeights& weights,
                         const char* role, bool out);
  std::string attention_bias(const KerasCall& c, const std::string& query, const std::string& value,
                             const std::string& key);
  Values multi_head_attention(const KerasCall& c);
  Values attention(const KerasCall& c);

  const io::KerasFile& file_;
  std::string what_;
  OnnxModelProto model_;
  std::set<std::string> used_;
  std::map<std::string, int64_t> unknown_;
  std::map<std::string, std::string> masks_;  ///< of values that carry one
  std::map<std::string, int> ranks_;          ///< dimensions of values, as far as they are known
  /// The masks of concatenated values, which are made when a layer uses them.
  struct JoinedMask {
    Values inputs;
    int64_t axis;
    std::string value;  ///< once it is made
    int depth = 0;      ///< joined masks inside each other
  };
  std::map<std::string, JoinedMask> joined_masks_;
  int depth_ = 0;
  bool keras2_ = false;  ///< written before version 3
};

/// "Sequential", "Functional": a model as a layer.
bool is_keras_model_type(std::string_view type);
/// Dimensions of a layer's input, as the file has it since Keras 3; 0: unknown.
int keras_input_rank(const io::Json& layer);
/// A member, or null; the entries of an array, or none.
const io::Json& keras_member(const io::Json& j, const char* key);
const std::vector<io::Json>& keras_entries(const io::Json* j);
/// The type of Keras's name, as ONNX numbers it; 0: unknown.
int64_t keras_dtype(std::string_view name);

/// "GlobalAveragePooling2D" as "global_average_pooling2d".
std::string keras_snake_case(std::string_view name);

}  // namespace tandem::onnx
