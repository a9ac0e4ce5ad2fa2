// SPDX-License-Identifier: Apache-2.0
// ONNX files as jobs, for people who train with another framework: the file's graph with its
// weights as parameters, a loss after it, and Tandem's gradients and optimizer.
#include <fmt/format.h>

#include "tandem/grad/autograd.h"
#include "tandem/graph/dry_run.h"
#include "tandem/onnx/named_shapes.h"
#include "tandem/onnx/onnx.h"
#include "tandem/ops/ops.h"
#include "tandem/plan/jobs_internal.h"
#include "tandem/plan/names_internal.h"

namespace tandem::plan {
namespace {

DType dtype_of(const onnx::OnnxPort& p, const std::string& path) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (onnx::onnx_type_of(static_cast<DType>(i)) == p.type.elem) return static_cast<DType>(i);
  TD_FAIL(Unsupported, "'{}': input '{}' is {}, plans expect tensors", path, p.name,
          onnx::to_string(p.type.elem));
}

// The shape of an input for a batch; open sizes come from `given` (of --shapes) or the options.
std::vector<int64_t> shape_of(const onnx::OnnxPort& p, std::vector<int64_t> given,
                              const JobOptions& o, int64_t batch, const std::string& path) {
  if (!given.empty()) {
    given[0] = batch;
    return given;
  }
  std::vector<int64_t> dims = p.type.dims;
  const bool image = dims.size() == 4, tokens = !is_floating(dtype_of(p, path));
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d == 0) {
      TD_CHECK(dims[0] <= 1 || dims[0] == batch, Value,
               "'{}' was exported for batches of {}, {} are asked for\nGive --batch {}, or export "
               "it with an open batch.",
               path, dims[0], batch, dims[0]);
      dims[0] = batch;
    }
    if (dims[d] >= 0) continue;
    if (image && d >= 2 && o.image_size) dims[d] = *o.image_size;
    if (tokens && d == 1 && o.sequence) dims[d] = *o.sequence;
    TD_CHECK(dims[d] >= 0, Value,
             "'{}': dimension {} of input '{}' is open\nGive {}--shapes {}:...", path, d, p.name,
             image    ? "--image-size or "
             : tokens ? "--sequence or "
                      : "",
             p.name);
  }
  return dims;
}

enum class Loss : uint8_t { output, cross_entropy, mse };

Loss loss_of(const std::string& name, const Shape& y) {
  static const std::vector<std::string> kNames = {"output", "cross_entropy", "mse"};
  for (size_t k = 0; k < kNames.size(); ++k)
    if (name == kNames[k]) return static_cast<Loss>(k);
  TD_CHECK(name.empty(), Value, "there is no loss '{}'\n{}It is cross_entropy, mse or output.",
           name, did_you_mean(name, kNames));
  const int rank = y.rank();
  if (rank == 0 || (rank == 1 && y.data()[0] == 1)) return Loss::output;
  if (rank < 2 || rank > 4) return Loss::mse;
  return y.data()[rank == 3 ? 2 : 1] > 1 ? Loss::cross_entropy : Loss::mse;
}

}  // namespace

Job onnx_job(const std::string& path, const JobOptions& o) {
  using onnx::OnnxModel;
  auto plain = std::make_shared<OnnxModel>(OnnxModel::load(path));
  auto trained = std::make_shared<OnnxModel>(OnnxModel::load(path, {.trainable = true}));
  Job job;
  job.name = path.substr(path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1);
  std::vector<std::string> names;
  for (const onnx::OnnxPort& p : plain->inputs()) names.push_back(p.name);
  const auto given = onnx::named_shapes(o.shapes, names);
  if (!plain->inputs().empty()) {
    const onnx::OnnxPort& first = plain->inputs()[0];
    const std::vector<int64_t> dims =
        shape_of(first, given[0], o,
                 !first.type.dims.empty() && first.type.dims[0] > 1 ? first.type.dims[0] : 1, path);
    if (!is_floating(dtype_of(first, path)) && dims.size() == 2) {
      job.unit = "tokens";
      job.units_per_sample = static_cast<double>(dims[1]);
    }
    job.sample_bytes = static_cast<double>(size_of(dtype_of(first, path)));
    for (size_t d = 1; d < dims.size(); ++d) job.sample_bytes *= static_cast<double>(dims[d]);
    job.sample_from = "the file's first input, as it goes in";
  }
  job.make = [plain, trained, path, o, given](int64_t batch) {
    auto m = std::make_shared<JobModel>();
    for (const auto& [name, value] : trained->weights()) {
      const Tensor& w = value.tensor();
      m->parameters.emplace_back(is_dry_run() ? empty(w.shape(), w.dtype()) : w.clone());
    }
    size_t k = 0;
    for (const onnx::OnnxPort& p : plain->inputs()) {
      const Shape shape(shape_of(p, given[k++], o, batch, path));
      m->inputs.push_back(zeros(shape, dtype_of(p, path)));
    }
    const size_t n = m->inputs.size();
    m->forward = [plain, n](const std::vector<Tensor>& in) {
      return (*plain)(std::vector<Tensor>(in.begin(), in.begin() + static_cast<ptrdiff_t>(n)))[0];
    };
    if (m->parameters.empty()) return m;
    const auto run = [trained, n, weights = m->parameters](const std::vector<Tensor>& in) {
      std::vector<Tensor> all(in.begin(), in.begin() + static_cast<ptrdiff_t>(n));
      for (const Param& w : weights) all.push_back(w.value());
      return (*trained)(all)[0];
    };
    Shape y;
    {
      NoGradGuard no_grad;
      y = run(m->inputs).shape();
    }
    const Loss loss = loss_of(o.loss, y);
    if (loss == Loss::mse) {
      m->inputs.push_back(zeros(y));
    } else if (loss == Loss::cross_entropy) {
      std::vector<int64_t> classes;
      const int64_t channel = y.rank() == 3 ? 2 : 1;
      for (int64_t d = 0; d < y.rank(); ++d)
        if (d != channel) classes.push_back(y.data()[d]);
      m->inputs.push_back(zeros(Shape(classes), DType::i64));
    }
    m->loss = [run, loss, o](const std::vector<Tensor>& in) {
      Tensor y = run(in);
      switch (loss) {
        case Loss::output:
          return y.sum();
        case Loss::mse:
          return mse_loss(y, in.back());
        case Loss::cross_entropy:
          break;
      }
      return class_loss(std::move(y), in.back(), o);
    };
    return m;
  };
  return job;
}

}  // namespace tandem::plan
