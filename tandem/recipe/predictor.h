// SPDX-License-Identifier: Apache-2.0
// Predictor: a trained run (or any LoadedModel) that answers files, images, texts, rows of tables
// and arrays with classes, boxes, masks or numbers. `tandem predict` prints what it gives.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/recipe/loaded_model.h"

namespace tandem::recipe {

struct PreparedBatch;  // recipe.h

struct PredictorOptions {
  std::string weights = "last";  ///< of a run: last, or best by its monitor
  bool bf16 = false;             ///< matmuls and convolutions in bf16, as under AutocastGuard
  double score = 0.3;            ///< the least score of a box
  Device device = cpu;           ///< of a run: where its model runs; answers come to the host
};

/// A class (of a text model: the next character) with its probability.
struct ScoredClass {
  int64_t index = 0;
  std::string label = "";  ///< its name where the run knows it, else the index
  double score = 0;
};
struct PredictedBox {
  int64_t index = 0;
  std::string label = "";
  double score = 0;
  /// x1, y1, x2, y2 in pixels of the image that was given (see Prediction::note).
  std::array<double, 4> corners = {};
};

enum class PredictionKind : uint8_t {
  classes,  ///< `classes`
  numbers,  ///< `numbers`
  boxes,    ///< `boxes`
  image,    ///< `image`: a mask or a drawing
  arrays,   ///< `outputs` alone
};

/// Answers for a batch of samples: one list each.
struct TD_API Prediction {
  PredictionKind kind = PredictionKind::arrays;
  std::vector<std::pair<std::string, Tensor>> outputs = {};  ///< the model's own, by name
  std::vector<std::vector<ScoredClass>> classes = {};        ///< all of them, likeliest first
  std::vector<std::vector<double>> numbers = {};
  std::vector<std::vector<PredictedBox>> boxes = {};  ///< best first
  Tensor image = {};                                  ///< u8 [c, h, w]
  std::string note = "";                              ///< what to know of the answer; often empty
  /// The lines that `tandem predict` prints: of each sample `top` classes or boxes, 0 for five
  /// classes and all boxes.
  std::string to_string(int64_t top = 0) const;

 private:
  friend class Predictor;
  bool named_ = false;  ///< labels are names
  double score_ = 0;
};

class TD_API Predictor {
 public:
  /// Of a run's folder. Throws Io, Format; Unsupported for a run whose model gives no output for an
  /// input alone.
  explicit Predictor(const std::string& run, const PredictorOptions& options = {});
  explicit Predictor(LoadedModel model, const PredictorOptions& options = {});

  /// A file of what the run's data is made of: JPEG or PNG, WAV or FLAC, lines of CSV, texts; or
  /// arrays by name (.npz, .safetensors) or one array (.npy), which are taken as they are. Throws
  /// Unsupported for what the run's samples are not.
  Prediction file(const FilePath& path);
  /// The same of a file's bytes; `name` stands in messages.
  Prediction bytes(std::string_view bytes, const std::string& name = "input");
  /// A text, or several, one a line; of a run over tables rows of CSV.
  Prediction text(const std::string& text) { return bytes(text, "the text"); }
  /// u8 [c, h, w] or [h, w].
  Prediction image(const Tensor& image);
  /// Inputs in the model's order, with or without the batch dimension, as they are.
  Prediction arrays(std::vector<Tensor> inputs);
  // The three steps behind those, for a program that runs several inputs at once (room serve).
  /// What bytes() gives the model, with a batch dimension of 1. May run beside forward().
  PreparedBatch prepare(std::string_view bytes, const std::string& name = "input");
  /// The model's outputs for such inputs, or several of them concatenated.
  std::vector<Tensor> forward(const std::vector<Tensor>& inputs);
  /// What outputs mean; `prepared` of one input leads boxes back to its image.
  Prediction answer(const std::vector<Tensor>& outputs, const PreparedBatch* prepared = nullptr);
  const LoadedModel& model() const;
  /// Why the answer given last did not come from one compiled program, and what that costs; ""
  /// where it did.
  std::string note() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tandem::recipe
