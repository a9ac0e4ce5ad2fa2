// SPDX-License-Identifier: Apache-2.0
// tandem_c.h over recipe::Predictor. Handles are numbers of a table, so that one that was freed is
// found out, and nothing is thrown across the functions.
#include "tandem/tandem_c.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/parallel.h"
#include "tandem/base/per_thread.h"
#include "tandem/graph/context.h"
#include "tandem/graph/dry_run.h"
#include "tandem/init.h"
#include "tandem/onnx/runner.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/model_bytes.h"
#include "tandem/recipe/open_run.h"
#include "tandem/recipe/predictor.h"

namespace tandem {
namespace {

#include "tandem/edge/mini/checks.inc"

// Numbers of the C header are those of the enum, one further.
#define X(name, type, text) static_assert(size_of(DType::name) == sizeof(type));
TD_FOR_EACH_DTYPE(X)
#undef X
static_assert(TANDEM_FLOAT64 == static_cast<int>(DType::f64) + 1 &&
              TANDEM_BOOL == static_cast<int>(DType::b8) + 1 && TANDEM_BOOL == kDTypeCount &&
              TANDEM_MAX_RANK == kMaxRank);
tandem_dtype number_of(DType t) { return static_cast<tandem_dtype>(t) + 1; }
DType dtype_of_number(tandem_dtype t) { return static_cast<DType>(t - 1); }

// ---- errors

struct CThread {
  std::string error;
  /// Results that the library keeps for this thread, by the model's number.
  std::unordered_map<uintptr_t, std::vector<Tensor>> kept;
};
CThread& this_thread() { return detail::PerThread<CThread>::get(); }

tandem_status failed(tandem_status status, std::string_view text) noexcept {
  try {
    this_thread().error = text;
  } catch (...) {
    return TANDEM_ERROR_MEMORY;
  }
  return status;
}

tandem_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Shape:
      return TANDEM_ERROR_SHAPE;
    case ErrorKind::DType:
      return TANDEM_ERROR_DTYPE;
    case ErrorKind::Index:
      return TANDEM_ERROR_INDEX;
    case ErrorKind::Value:
      return TANDEM_ERROR_ARGUMENT;
    case ErrorKind::Memory:
      return TANDEM_ERROR_MEMORY;
    case ErrorKind::Io:
      return TANDEM_ERROR_IO;
    case ErrorKind::Format:
      return TANDEM_ERROR_FORMAT;
    case ErrorKind::Device:
    case ErrorKind::Unsupported:
      return TANDEM_ERROR_UNSUPPORTED;
    default:
      return TANDEM_ERROR_INTERNAL;
  }
}

/// What f returns, or the status of what it throws.
template <class F>
tandem_status guarded(F&& f) noexcept {
  try {
    return f();
  } catch (const Error& e) {
    return failed(status_of(e.kind()), e.what());
  } catch (const std::bad_alloc&) {
    return failed(TANDEM_ERROR_MEMORY, "there is not enough memory");
  } catch (const std::exception& e) {
    return failed(TANDEM_ERROR_INTERNAL, e.what());
  } catch (...) {
    return failed(TANDEM_ERROR_INTERNAL, "an exception of an unknown type");
  }
}
/// Inside guarded() alone.
tandem_status null_pointer(const char* name) {
  return failed(TANDEM_ERROR_ARGUMENT, std::string(name) + " is NULL");
}
tandem_status done(tandem_status status, const tandem_text& why) {
  return status == TANDEM_OK ? status : failed(status, why.text);
}

// ---- what models take and give

struct Port {
  DType dtype = DType::f32;
  bool has_dtype = true, has_rank = true;
  std::vector<int64_t> sizes;  ///< -1: open
};

/// Dtypes and shapes of the outputs where open sizes of the inputs are n; nothing where that cannot
/// be told without values.
std::optional<std::vector<Spec>> dry_outputs(const recipe::LoadedModel& m, int64_t n) {
  try {
    const NoGradGuard no_grad;
    const DryRunGuard dry;
    std::vector<Tensor> in;
    for (const recipe::ModelPort& p : m.inputs) {
      std::vector<int64_t> sizes = p.shape;
      std::replace(sizes.begin(), sizes.end(), int64_t{-1}, n);
      in.push_back(zeros(Shape(sizes), p.dtype));
    }
    std::vector<Spec> out;
    for (const Tensor& y : m.run(in)) out.emplace_back(y.dtype(), y.shape());
    return out;
  } catch (const std::exception&) {
    return {};
  }
}

std::vector<Port> input_ports(const recipe::LoadedModel& m) {
  std::vector<Port> out;
  for (const recipe::ModelPort& p : m.inputs) {
    const size_t k = out.size();
    const bool known = !m.runner || m.runner->model().inputs().at(k).type.has_shape;
    out.push_back({.dtype = p.dtype, .has_rank = known, .sizes = p.shape});
  }
  return out;
}

// From two dry runs: what differs between them is open. Where there is none, what a file says.
std::vector<Port> output_ports(const recipe::LoadedModel& m) {
  const bool open = std::any_of(m.inputs.begin(), m.inputs.end(), [](const auto& p) {
    return std::any_of(p.shape.begin(), p.shape.end(), [](int64_t n) { return n < 0; });
  });
  const auto one = dry_outputs(m, 1), two = open ? dry_outputs(m, 2) : one;
  std::vector<Port> out;
  for (size_t k = 0; k < m.outputs.size(); ++k) {
    const recipe::ModelPort& said = m.outputs[k];
    Port port{.dtype = said.dtype, .sizes = said.shape};
    if (m.runner) {
      const onnx::OnnxTypeSpec& type = m.runner->model().outputs().at(k).type;
      port.has_dtype = type.elem != onnx::OnnxType::undefined;
      port.has_rank = type.has_shape;
    } else {
      port.has_dtype = port.has_rank = false;
    }
    const auto seen = one && k < one->size() ? one : two;
    if (seen && k < seen->size()) {
      const Spec& a = (*seen)[k];
      const bool both = one && two && k < two->size();
      const Shape b = both ? (*two)[k].shape : Shape();
      if (!port.has_rank || port.sizes.size() != a.shape.size())
        port.sizes.assign(a.shape.size(), -1);
      port.has_dtype = true;
      port.has_rank = !both || a.shape.rank() == b.rank();
      port.dtype = a.dtype;
      for (int d = 0; both && port.has_rank && d < a.shape.rank(); ++d)
        port.sizes[static_cast<size_t>(d)] = a.shape[d] == b[d] ? a.shape[d].value() : -1;
    }
    out.push_back(std::move(port));
  }
  return out;
}

struct CModel {
  CModel(recipe::LoadedModel m, std::vector<Port> in, std::vector<Port> out)
      : predictor(std::move(m)) {
    const recipe::LoadedModel& model = predictor.model();
    fill(model.inputs, in, inputs);
    fill(model.outputs, out, outputs);
    takes = inputs;
    for (size_t k = 0; k < takes.size(); ++k)
      for (size_t d = 0; d < model.inputs[k].open.size(); ++d)
        if (!model.inputs[k].open[d].name.empty() && static_cast<int32_t>(d) < takes[k].rank)
          takes[k].sizes[d] = -1;
  }

  recipe::Predictor predictor;
  /// As tandem_input() says; names belong to the model of the predictor.
  std::vector<tandem_tensor> inputs, outputs;
  std::vector<tandem_tensor> takes;  ///< the inputs with all sizes open that may differ

 private:
  static void fill(const std::vector<recipe::ModelPort>& names, const std::vector<Port>& ports,
                   std::vector<tandem_tensor>& to) {
    for (size_t k = 0; k < ports.size(); ++k) {
      const Port& p = ports[k];
      tandem_tensor t{};
      t.name = names[k].name.c_str();
      t.dtype = p.has_dtype ? number_of(p.dtype) : 0;
      t.rank = p.has_rank ? static_cast<int32_t>(p.sizes.size()) : -1;
      TD_CHECK(t.rank <= TANDEM_MAX_RANK, Unsupported, "'{}' has {} dimensions, at most {}",
               names[k].name, t.rank, TANDEM_MAX_RANK);
      for (int32_t d = 0; d < t.rank; ++d)
        t.sizes[d] = std::max<int64_t>(p.sizes[static_cast<size_t>(d)], -1);
      to.push_back(t);
    }
  }
};

// ---- handles

/// Loaded models by number. Numbers are odd, so that none is an address, and never used twice.
struct CTable {
  std::mutex lock;
  std::unordered_map<uintptr_t, std::shared_ptr<CModel>> models;
  uintptr_t next = 1;
};
CTable& table() {
  static CTable* t = new CTable;  // programs may call while they end
  return *t;
}
uintptr_t number_of(const tandem_model* model) { return reinterpret_cast<uintptr_t>(model); }

/// Calls f with the model while nobody can take it away.
template <class F>
tandem_status with_model(const tandem_model* model, F&& f) noexcept {
  return guarded([&] {
    if (!model) return failed(TANDEM_ERROR_HANDLE, "the model is NULL");
    std::shared_ptr<CModel> m;
    {
      CTable& t = table();
      const std::lock_guard hold(t.lock);
      const auto at = t.models.find(number_of(model));
      if (at != t.models.end()) m = at->second;
    }
    if (!m)
      return failed(TANDEM_ERROR_HANDLE, "the model is not loaded: it was freed, or never was one");
    return f(*m);
  });
}

/// Drops what this thread keeps of models that are freed.
void drop_results_of_freed() {
  auto& kept = this_thread().kept;
  if (kept.empty()) return;
  CTable& t = table();
  const std::lock_guard hold(t.lock);
  std::erase_if(kept, [&](const auto& entry) { return !t.models.count(entry.first); });
}

template <class Load>
tandem_status load_with(tandem_model** model, const tandem_load_options* options, Load load) {
  if (!model) return failed(TANDEM_ERROR_ARGUMENT, "model is NULL");
  *model = nullptr;
  return guarded([&] {
    tandem_text why{};
    if (const tandem_status s = tandem_check_options(options, &why); s != TANDEM_OK)
      return failed(s, why.text);
    init();
    recipe::ModelSource source;
    if (options && options->weights) source.weights = options->weights;
    if (options && options->signature) source.signature = options->signature;
    if (options && options->device) source.device = device_named(options->device);
    recipe::LoadedModel m = load(source);
    std::vector<Port> in = input_ports(m), out = output_ports(m);
    auto made = std::make_shared<CModel>(std::move(m), std::move(in), std::move(out));
    drop_results_of_freed();
    CTable& t = table();
    const std::lock_guard hold(t.lock);
    t.models.emplace(t.next, std::move(made));
    *model = reinterpret_cast<tandem_model*>(t.next);
    t.next += 2;
    return tandem_status{TANDEM_OK};
  });
}

// ---- running

Tensor tensor_of(const tandem_tensor& x) {
  Tensor t =
      empty(Shape(std::span(x.sizes, static_cast<size_t>(x.rank))), dtype_of_number(x.dtype));
  if (x.bytes == 0) return t;
  visit_dtype(t.dtype(), [&](auto element) {
    using T = decltype(element);
    T* to = t.mutable_data<T>();
    if constexpr (std::is_same_v<T, bool>) {
      const auto* from = static_cast<const uint8_t*>(x.data);
      for (size_t i = 0; i < x.bytes; ++i) to[i] = from[i] != 0;
    } else {
      std::memcpy(static_cast<void*>(to), x.data, x.bytes);
    }
  });
  return t;
}

/// Dtype, sizes and bytes of a value; the name is that of the port.
tandem_tensor described(const tandem_tensor& port, const Tensor& value) {
  tandem_tensor t{};
  t.name = port.name;
  t.dtype = number_of(value.dtype());
  t.rank = value.dim();
  for (int d = 0; d < value.dim(); ++d) t.sizes[d] = value.size(d);
  t.bytes = static_cast<size_t>(value.numel()) * size_of(value.dtype());
  return t;
}

std::vector<Tensor> outputs_of(CModel& m, const tandem_tensor* inputs,
                               const std::vector<size_t>& place) {
  std::vector<Tensor> in;
  for (size_t k = 0; k < m.inputs.size(); ++k) in.push_back(tensor_of(inputs[place[k]]));
  std::vector<Tensor> out = m.predictor.forward(in);
  TD_CHECK(out.size() >= m.outputs.size(), Unsupported, "the model gave {} outputs of {}",
           out.size(), m.outputs.size());
  out.resize(m.outputs.size());
  for (size_t k = 0; k < out.size(); ++k) {
    TD_CHECK(out[k].defined(), Unsupported, "output '{}' is absent", m.outputs[k].name);
    out[k] = out[k].contiguous();
  }
  return out;
}

/// All buffers are checked before the first is written.
tandem_status fill_buffers(const CModel& m, const std::vector<Tensor>& values,
                           tandem_tensor* outputs, const std::vector<size_t>& place) {
  tandem_text why{};
  for (size_t k = 0; k < values.size(); ++k) {
    const tandem_tensor value = described(m.outputs[k], values[k]);
    tandem_tensor& to = outputs[place[k]];
    tandem_status status = tandem_check_buffer(&value, &to, &why);
    if (status == TANDEM_OK) status = tandem_check_space(&value, &to, &why);
    if (status != TANDEM_OK) return failed(status, why.text);
  }
  for (size_t k = 0; k < values.size(); ++k) {
    const tandem_tensor value = described(m.outputs[k], values[k]);
    tandem_tensor& to = outputs[place[k]];
    if (value.bytes > 0) std::memcpy(to.data, values[k].data_ptr(), value.bytes);
    to.dtype = value.dtype;
    to.rank = value.rank;
    std::copy_n(value.sizes, value.rank, to.sizes);
  }
  return TANDEM_OK;
}

tandem_status run(CModel& m, uintptr_t number, const tandem_tensor* inputs, size_t input_count,
                  tandem_tensor* outputs, size_t output_count) {
  tandem_text why{};
  std::vector<size_t> in(m.inputs.size() + 1), out(m.outputs.size() + 1);
  const tandem_status status =
      tandem_check_run(m.takes.data(), m.takes.size(), m.outputs.data(), m.outputs.size(), inputs,
                       input_count, outputs, output_count, in.data(), out.data(), &why);
  if (status != TANDEM_OK) return failed(status, why.text);
  std::vector<Tensor> values = outputs_of(m, inputs, in);
  if (outputs || output_count > 0) return fill_buffers(m, values, outputs, out);
  drop_results_of_freed();
  this_thread().kept[number] = std::move(values);
  return TANDEM_OK;
}

tandem_status port_at(const std::vector<tandem_tensor>& ports, const char* kind, size_t at,
                      tandem_tensor* tensor) {
  if (!tensor) return null_pointer("tensor");
  tandem_text why{};
  const tandem_status status = tandem_check_place(at, ports.size(), kind, &why);
  if (status == TANDEM_OK) *tensor = ports[at];
  return done(status, why);
}

tandem_status find_port(const std::vector<tandem_tensor>& ports, const char* kind, const char* name,
                        size_t* at) {
  if (!name) return null_pointer("name");
  if (!at) return null_pointer("at");
  tandem_text why{};
  return done(tandem_find_port(ports.data(), ports.size(), kind, name, at, &why), why);
}

}  // namespace
}  // namespace tandem

using namespace tandem;

const char* tandem_version(void) { return TANDEM_VERSION; }
const char* tandem_last_error(void) {
  try {
    return this_thread().error.c_str();
  } catch (...) {
    return "there is not enough memory";
  }
}
const char* tandem_status_name(tandem_status status) { return tandem_name_of_status(status); }
const char* tandem_dtype_name(tandem_dtype dtype) { return tandem_name_of_dtype(dtype); }
size_t tandem_dtype_bytes(tandem_dtype dtype) { return tandem_bytes_of_dtype(dtype); }

tandem_status tandem_set_threads(int32_t count) {
  return guarded([&] {
    constexpr int32_t kMost = 1024;
    if (count < 0 || count > kMost)
      return failed(TANDEM_ERROR_ARGUMENT, "the number of threads is from 1 to 1024, or 0");
    set_num_threads(count);
    return tandem_status{TANDEM_OK};
  });
}

tandem_status tandem_get_threads(int32_t* count) {
  if (!count) return failed(TANDEM_ERROR_ARGUMENT, "count is NULL");
  return guarded([&] {
    *count = num_threads();
    return tandem_status{TANDEM_OK};
  });
}

tandem_status tandem_load(const char* path, const tandem_load_options* options,
                          tandem_model** model) {
  return load_with(model, options, [&](recipe::ModelSource& source) {
    TD_CHECK(path && *path, Value, "path is {}", path ? "empty" : "NULL");
    source.model = path;
    return recipe::is_run(source.model)
               ? recipe::load_run(source.model, source.weights, source.device)
               : recipe::load_model(source);
  });
}

tandem_status tandem_load_memory(const void* data, size_t bytes, const tandem_load_options* options,
                                 tandem_model** model) {
  return load_with(model, options, [&](recipe::ModelSource& source) {
    TD_CHECK(data && bytes > 0, Value, "{}", data ? "bytes is 0" : "data is NULL");
    source.model = "the model in memory";
    return recipe::load_model_bytes(std::string(static_cast<const char*>(data), bytes), source);
  });
}

tandem_status tandem_free(tandem_model* model) {
  if (!model) return TANDEM_OK;
  std::shared_ptr<CModel> last;  // goes when the table is free again
  return with_model(model, [&](CModel&) {
    CTable& t = table();
    {
      const std::lock_guard hold(t.lock);
      const auto at = t.models.find(number_of(model));
      if (at != t.models.end()) {
        last = std::move(at->second);
        t.models.erase(at);
      }
    }
    this_thread().kept.erase(number_of(model));
    return tandem_status{TANDEM_OK};
  });
}

tandem_status tandem_count(tandem_model* model, size_t* inputs, size_t* outputs) {
  return with_model(model, [&](const CModel& m) {
    if (!inputs || !outputs) return null_pointer(inputs ? "outputs" : "inputs");
    *inputs = m.inputs.size();
    *outputs = m.outputs.size();
    return tandem_status{TANDEM_OK};
  });
}

tandem_status tandem_input(tandem_model* model, size_t at, tandem_tensor* tensor) {
  return with_model(model, [&](const CModel& m) { return port_at(m.inputs, "input", at, tensor); });
}

tandem_status tandem_output(tandem_model* model, size_t at, tandem_tensor* tensor) {
  return with_model(model,
                    [&](const CModel& m) { return port_at(m.outputs, "output", at, tensor); });
}

tandem_status tandem_find_input(tandem_model* model, const char* name, size_t* at) {
  return with_model(model, [&](const CModel& m) { return find_port(m.inputs, "input", name, at); });
}

tandem_status tandem_find_output(tandem_model* model, const char* name, size_t* at) {
  return with_model(model,
                    [&](const CModel& m) { return find_port(m.outputs, "output", name, at); });
}

tandem_status tandem_run(tandem_model* model, const tandem_tensor* inputs, size_t input_count,
                         tandem_tensor* outputs, size_t output_count) {
  return with_model(model, [&](CModel& m) {
    return run(m, number_of(model), inputs, input_count, outputs, output_count);
  });
}

tandem_status tandem_result(tandem_model* model, size_t at, tandem_tensor* tensor) {
  return with_model(model, [&](const CModel& m) {
    if (!tensor) return null_pointer("tensor");
    tandem_text why{};
    if (const auto s = tandem_check_place(at, m.outputs.size(), "output", &why); s != TANDEM_OK)
      return failed(s, why.text);
    const auto& kept = this_thread().kept;
    const auto found = kept.find(number_of(model));
    if (found == kept.end())
      return failed(TANDEM_ERROR_ARGUMENT,
                    "there are no results: no call of tandem_run() without buffers was made in "
                    "this thread");
    const Tensor& value = found->second.at(at);
    *tensor = described(m.outputs[at], value);
    if (tensor->bytes > 0) tensor->data = const_cast<void*>(value.data_ptr());
    return tandem_status{TANDEM_OK};
  });
}
