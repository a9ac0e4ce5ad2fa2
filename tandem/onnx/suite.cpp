// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/suite.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "tandem/graph/context.h"
#include "tandem/io/json.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace fs = std::filesystem;
namespace {

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void read_tolerances(const fs::path& file, OnnxCase& c) {
  if (!fs::exists(file)) return;
  const io::Json j = io::parse_json(read_file(file), file.string());
  if (const io::Json* v = j.find("rtol"); v && v->as_double()) c.rtol = *v->as_double();
  if (const io::Json* v = j.find("atol"); v && v->as_double()) c.atol = *v->as_double();
}

OnnxCase folder_case(const fs::path& model) {
  OnnxCase c;
  const fs::path folder = model.parent_path();
  c.name = folder.filename().string();
  c.model = model.string();
  for (const auto& e : fs::directory_iterator(folder))
    if (e.is_directory() && e.path().filename().string().rfind("test_data_set", 0) == 0)
      c.data_sets.push_back(e.path().string());
  std::sort(c.data_sets.begin(), c.data_sets.end());
  read_tolerances(folder / "data.json", c);
  return c;
}

/// `light/light_x.onnx` with its `light_x_output_0.pb`; its tolerances are those of the full model,
/// in `real/test_x`.
OnnxCase file_case(const fs::path& model) {
  OnnxCase c;
  c.name = model.stem().string();
  c.model = model.string();
  c.light = true;
  const std::string plain = c.name.rfind("light_", 0) == 0 ? c.name.substr(6) : c.name;
  read_tolerances(model.parent_path().parent_path() / "real" / ("test_" + plain) / "data.json", c);
  return c;
}

/// Numbers 0, 1/n, 2/n ...: what ONNX's runner feeds to models without recorded inputs.
OnnxValue counting_input(const OnnxPort& p) {
  TD_CHECK(p.type.kind == OnnxTypeSpec::Kind::tensor && p.type.elem == OnnxType::f32, Unsupported,
           "input '{}' has no recorded values", p.name);
  Shape s;
  for (const int64_t d : p.type.dims) s.push_back(d < 0 ? 1 : d);
  const int64_t n = s.numel().value();
  const Tensor i = arange(0, n, 1, DType::f64) / static_cast<double>(n);
  return OnnxValue(i.to(DType::f32).reshape(s));
}

OnnxValue read_value(const fs::path& file, const OnnxTypeSpec& type) {
  const std::string bytes = read_file(file);
  return parse_onnx_value(bytes, file.string(), type);
}

using Run = std::function<std::vector<OnnxValue>(std::span<const OnnxValue>)>;

/// Compare the outputs of one data set.
std::string run_set(const OnnxModel& m, const Run& run, const OnnxCase& c, const fs::path& folder) {
  const auto& graph_inputs = m.proto().graph.inputs;
  std::vector<OnnxValue> in;
  for (size_t i = 0; fs::exists(folder / fmt::format("input_{}.pb", i)); ++i) {
    TD_CHECK(i < graph_inputs.size(), Value, "there are more inputs than the model takes");
    in.push_back(read_value(folder / fmt::format("input_{}.pb", i), graph_inputs[i].type));
  }
  const std::vector<OnnxValue> out = run(in);
  size_t compared = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const fs::path file = folder / fmt::format("output_{}.pb", i);
    if (!fs::exists(file)) break;
    const OnnxValue want = read_value(file, m.outputs()[i].type);
    const std::string differs = compare_onnx_values(out[i], want, c.rtol, c.atol);
    if (!differs.empty()) return fmt::format("output {}: {}", i, differs);
    ++compared;
  }
  return compared == out.size() ? ""
                                : fmt::format("{} outputs, {} are recorded", out.size(), compared);
}

std::string run_light(const OnnxModel& m, const Run& run, const OnnxCase& c) {
  std::vector<OnnxValue> in;
  for (const OnnxPort& p : m.inputs()) in.push_back(counting_input(p));
  const std::vector<OnnxValue> out = run(in);
  const std::string stem = c.model.substr(0, c.model.size() - 5);
  for (size_t i = 0; i < out.size(); ++i) {
    const OnnxValue want = read_value(fmt::format("{}_output_{}.pb", stem, i), m.outputs()[i].type);
    const std::string differs = compare_onnx_values(out[i], want, c.rtol, c.atol);
    if (!differs.empty()) return fmt::format("output {}: {}", i, differs);
  }
  return "";
}

std::string compare_numbers(const OnnxValue& got, const OnnxValue& want, double rtol, double atol) {
  if (got.type() == OnnxType::i64 || got.type() == OnnxType::u64) {
    const auto a = got.tensor().to_vector<int64_t>(), b = want.tensor().to_vector<int64_t>();
    for (size_t i = 0; i < a.size(); ++i) {
      const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      if (a[i] != b[i] && std::fabs(x - y) > atol + rtol * std::fabs(y))
        return fmt::format("element {} is {}, expected {}", i, a[i], b[i]);
    }
    return "";
  }
  const auto a = got.tensor().to_vector<double>(), b = want.tensor().to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (same) continue;
    const double distance = std::fabs(a[i] - b[i]);
    if (!(distance <= atol + rtol * std::fabs(b[i])) || std::isinf(b[i]))
      return fmt::format("element {} is {}, expected {}", i, a[i], b[i]);
  }
  return "";
}

}  // namespace

// Two units in the last place, as ONNX's runner compares them since 1.23.
constexpr double kBfloat16Tolerance = 1.0 / 64;

std::string compare_onnx_values(const OnnxValue& got, const OnnxValue& want, double rtol,
                                double atol) {
  if (want.is_none() || got.is_none())
    return want.is_none() && got.is_none()
               ? ""
               : fmt::format("is {}, expected {}", got.describe(), want.describe());
  if (want.is_sequence()) {
    if (!got.is_sequence() || got.items().size() != want.items().size())
      return fmt::format("is {}, expected {}", got.describe(), want.describe());
    for (size_t i = 0; i < want.items().size(); ++i) {
      const std::string d = compare_onnx_values(got.items()[i], want.items()[i], rtol, atol);
      if (!d.empty()) return fmt::format("item {}: {}", i, d);
    }
    return "";
  }
  if (got.is_sequence() || got.type() != want.type() || got.shape() != want.shape())
    return fmt::format("is {}, expected {}", got.describe(), want.describe());
  if (want.is_strings()) {
    for (size_t i = 0; i < want.strings().values.size(); ++i)
      if (got.strings().values[i] != want.strings().values[i])
        return fmt::format("string {} is '{}', expected '{}'", i, got.strings().values[i],
                           want.strings().values[i]);
    return "";
  }
  if (want.type() == OnnxType::bf16) rtol = std::max(rtol, kBfloat16Tolerance);
  return compare_numbers(got, want, rtol, atol);
}

std::string onnx_suite_version(const std::string& folder) {
  const fs::path file = fs::path(folder) / "version";
  std::string text = fs::exists(file) ? read_file(file) : std::string();
  while (!text.empty() && text.back() <= ' ') text.pop_back();
  return text;
}

std::vector<OnnxCase> find_onnx_cases(const std::string& folder, const std::string& filter) {
  TD_CHECK(fs::is_directory(folder), Io, "'{}' is not a folder", folder);
  std::vector<fs::path> models;
  for (const auto& e : fs::recursive_directory_iterator(folder))
    if (e.is_regular_file() && e.path().extension() == ".onnx") models.push_back(e.path());
  std::sort(models.begin(), models.end());
  std::vector<OnnxCase> cases;
  for (const fs::path& m : models) {
    const bool alone = m.filename() != "model.onnx";
    const fs::path recorded = m.parent_path() / (m.stem().string() + "_output_0.pb");
    if (alone && !fs::exists(recorded)) continue;
    OnnxCase c = alone ? file_case(m) : folder_case(m);
    if (filter.empty() || holds(c.name, filter)) cases.push_back(std::move(c));
  }
  return cases;
}

namespace {

std::string run_sets(const OnnxModel& m, const Run& run, const OnnxCase& c) {
  if (c.light) return run_light(m, run, c);
  if (c.data_sets.empty()) return "there is no recorded data";
  for (const std::string& set : c.data_sets)
    if (std::string r = run_set(m, run, c, set); !r.empty()) return r;
  return "";
}

}  // namespace

OnnxVerdict run_onnx_case(const OnnxCase& c, bool compiled) {
  try {
    const NoGradGuard no_grad;
    // Some models of a few kilobytes make half a gigabyte of weights.
    const OnnxModel m = OnnxModel::load(c.model, {.limits = {.bytes = int64_t{2} << 30}});
    if (!compiled)
      return {run_sets(
          m, [&](std::span<const OnnxValue> in) { return m.run(in); }, c)};
    OnnxRunner runner(m);
    const Run run = [&](std::span<const OnnxValue> in) { return runner.run(in); };
    std::string differs = run_sets(m, run, c);
    if (differs.empty()) differs = run_sets(m, run, c);
    return {differs, runner.way(), runner.reason()};
  } catch (const std::exception& e) {
    return {e.what()};
  }
}

}  // namespace tandem::onnx
