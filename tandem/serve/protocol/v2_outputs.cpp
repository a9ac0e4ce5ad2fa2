// SPDX-License-Identifier: Apache-2.0
// Outputs of V2 as they are asked for: the model's numbers, or the highest of them as texts
// (Triton's classification extension), in the answer or in shared memory.
// https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_classification.md
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/ops/ops.h"
#include "tandem/recipe/open_run.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

constexpr int64_t kMostClassTexts = int64_t{1} << 20;  ///< of one answer

// Names of the classes where the model has them: one for each number of a row.
std::vector<std::string> class_labels(const ModelVersion& v, int64_t classes) {
  if (v.model->ensemble()) return {};
  const recipe::LoadedModel& model = v.model->predictor().model();
  const std::vector<std::string>& all =
      model.opened ? model.opened->data.facts.classes : model.labels;
  return static_cast<int64_t>(all.size()) == classes ? all : std::vector<std::string>();
}

template <class T>
bool is_nan(T v) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(v);
  return false;
}

// The `count` highest of a row, as "VALUE:INDEX[:LABEL]"; of equal ones the first comes first, and
// NaN comes last.
template <class T>
void add_classes(std::vector<std::string>& out, const T* row, int64_t classes, int64_t count,
                 const std::vector<std::string>& labels) {
  std::vector<int64_t> order(static_cast<size_t>(classes));
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto before = [row](int64_t a, int64_t b) {
    if (is_nan(row[a]) || is_nan(row[b]))
      return is_nan(row[a]) == is_nan(row[b]) ? a < b : is_nan(row[b]);
    return row[a] != row[b] ? row[a] > row[b] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), before);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = order[static_cast<size_t>(k)];
    std::string text;
    if constexpr (std::is_floating_point_v<T>)
      text = fmt::format("{:f}:{}", row[at], at);
    else
      text = fmt::format("{}:{}", row[at], at);
    if (!labels.empty()) text += ":" + labels[static_cast<size_t>(at)];
    out.push_back(std::move(text));
  }
}

// As Triton does it: of a batch each row has its classes, of anything else the whole output.
void classify_output(AnsweredOutput& out, const ModelVersion& v, const ModelPort& port,
                     const Tensor& y, int64_t most) {
  const bool rows = y.dim() > 0 && !port.shape.empty() && port.shape[0] < 0;
  const int64_t batch = rows ? y.size(0) : 1;
  const int64_t classes = batch > 0 ? y.numel() / batch : 0;
  const int64_t count = std::min(most, classes);
  if (count > 0 && batch > kMostClassTexts / count)
    refuse(400, "output '{}': {} classes of {} rows are more than {} texts; ask for fewer",
           port.name, count, batch, kMostClassTexts);
  const std::vector<std::string> labels = class_labels(v, classes);
  const auto add_rows = [&](const auto& values) {
    for (int64_t n = 0; n < batch; ++n)
      add_classes(out.texts, values.data() + n * classes, classes, count, labels);
  };
  if (is_floating(y.dtype()))
    add_rows(y.to(DType::f64).to_vector<double>());
  else
    add_rows(y.to(DType::i64).to_vector<int64_t>());
  for (const std::string& text : out.texts) add_element(out.own, text);
  out.datatype = kBytes;
  out.shape = {count};
  if (rows) out.shape.insert(out.shape.begin(), batch);
}

}  // namespace

std::string_view AnsweredOutput::bytes() const {
  if (!numbers.defined()) return own;
  if (numbers.numel() == 0) return {};
  return {static_cast<const char*>(numbers.data_ptr()),
          static_cast<size_t>(numbers.numel()) * size_of(numbers.dtype())};
}

std::vector<WantedOutput> wanted_outputs(const Asked& asked, const ModelVersion& v,
                                         const SharedMemory& shared) {
  const std::vector<ModelPort>& ports = v.model->outputs();
  std::vector<WantedOutput> out;
  out.reserve(asked.outputs.empty() ? ports.size() : asked.outputs.size());
  for (const AskedOutput& o : asked.outputs) {
    size_t at = 0;
    while (at < ports.size() && ports[at].name != o.name) ++at;
    if (at == ports.size())
      refuse(400, "the model has no output '{}'; it has {}", one_line(o.name, 64),
             known_names(ports));
    for (const WantedOutput& other : out)
      if (other.at == at) refuse(400, "output '{}' is asked for twice", o.name);
    if (o.classes < 0)
      refuse(400, "output '{}': 'classification' is {}, expected how many classes", o.name,
             o.classes);
    WantedOutput& wanted = out.emplace_back();
    wanted.at = at;
    wanted.binary = o.binary.value_or(asked.binary);
    wanted.classes = o.classes;
    if (o.shared) wanted.shared = shared.range(*o.shared, "output '" + o.name + "'");
  }
  if (asked.outputs.empty())
    for (size_t i = 0; i < ports.size(); ++i) out.push_back({.at = i, .binary = asked.binary});
  return out;
}

AnsweredOutput answered_output(const ModelVersion& v, const WantedOutput& wanted,
                               const JobResult& r) {
  const ModelPort& port = v.model->outputs()[wanted.at];
  const Tensor y = r.outputs.at(wanted.at).contiguous();
  AnsweredOutput out{.name = port.name, .datatype = v2_name(y.dtype())};
  if (wanted.classes > 0) {
    classify_output(out, v, port, y, wanted.classes);
  } else {
    if (!wanted.binary && !wanted.shared && is_short_float(y.dtype()))
      refuse(400, "output '{}' is {}, which has no form in JSON; ask for binary_data", port.name,
             out.datatype);
    out.numbers = y;
  }
  if (!wanted.shared) return out;
  const std::string_view bytes = out.bytes();
  if (bytes.size() > wanted.shared->bytes)
    refuse(400, "output '{}' has {} bytes, and was to fit in {} of region '{}'", port.name,
           bytes.size(), wanted.shared->bytes, wanted.shared->region->name());
  wanted.shared->region->write(wanted.shared->at, bytes);
  return out;
}

}  // namespace tandem::serve
