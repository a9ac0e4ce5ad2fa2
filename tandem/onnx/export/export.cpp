// SPDX-License-Identifier: Apache-2.0
// Export: trace, nodes, names and state, the two files, and the comparison with the model read
// back.
#include "tandem/onnx/export.h"

#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <list>

#include "tandem/graph/rng.h"
#include "tandem/io/json.h"
#include "tandem/io/safetensors.h"
#include "tandem/onnx/export/write.h"
#include "tandem/onnx/export/written_file_internal.h"
#include "tandem/onnx/import/build_internal.h"
#include "tandem/onnx/onnx.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int kLeastOpset = 17, kMostOpset = 22;
int64_t ir_version_of(int opset) { return opset <= 18 ? 8 : opset <= 20 ? 9 : 10; }

Names names_for(const std::vector<std::string>& given, size_t n, const char* letter,
                const char* what) {
  TD_CHECK(given.empty() || given.size() == n, Value, "{} names for {} {}s were given",
           given.size(), n, what);
  if (!given.empty()) return given;
  Names out;
  for (size_t i = 0; i < n; ++i) out.push_back(n == 1 ? letter : letter + std::to_string(i));
  return out;
}

// While it lives, sizes that cannot be told apart are equal, as the trace took them to be.
class TraceSizes {
 public:
  TraceSizes() : outer_(current_dim_checks()) { current_dim_checks() = &seen_; }
  ~TraceSizes() { current_dim_checks() = outer_; }
  TraceSizes(const TraceSizes&) = delete;
  TraceSizes& operator=(const TraceSizes&) = delete;

 private:
  DimChecks* outer_;
  DimChecks seen_;
};

class Exporter {
 public:
  Exporter(const Graph& g, std::span<const Tensor> examples, const FilePath& path,
           const OnnxExportOptions& o)
      : g_(g), examples_(examples), path_(path), o_(o), b_(o.opset), values_(g.nodes.size()) {}

  OnnxExportReport run() {
    add_nodes();
    drop_unused();
    finish();
    write();
    report_.random = b_.random;
    report_.custom_ops.assign(b_.custom.begin(), b_.custom.end());
    for (const auto& [a, b] : g_.checks.equal)
      report_.conditions.push_back(a.to_string() + " = " + b.to_string());
    if (o_.verify) verify();
    for (WrittenFile& f : written_) f.keep();
    return std::move(report_);
  }

 private:
  void add_nodes() {
    const TraceSizes sizes;
    name_ports();
    bring_cells();
    std::vector<Tensor> wanted = g_.outputs;
    for (const Graph::CellUse& u : g_.cells) wanted.push_back(u.exit);
    for (const Graph::GradUse& u : g_.grads)
      if (stored(u)) wanted.push_back(u.exit);
    b_.add_nodes(g_, wanted, values_);
    for (size_t i = 0; i < g_.outputs.size(); ++i) put_out(g_.outputs[i], outputs_[i]);
    for (size_t i = 0; i < g_.cells.size(); ++i)
      if (g_.cells[i].exit.defined()) {
        put_out(g_.cells[i].exit, next_names_[i]);
        report_.states.push_back({cell_names_[i], next_names_[i]});
        b_.model.metadata.emplace_back("tandem.state." + cell_names_[i], next_names_[i]);
      }
    for (const Graph::GradUse& u : g_.grads)
      if (stored(u)) put_out(u.exit, b_.unique(grad_name(u)));
  }

  static bool stored(const Graph::GradUse& u) {
    return u.stored && !u.consumed && u.exit.defined();
  }
  std::string& value_of(const Tensor& t) {
    Names& v = values_[node_of(t)->index];
    if (v.empty()) v.resize(1);
    return v[t.impl()->out_index];
  }

  // ---- ports

  void name_ports() {
    inputs_ = names_for(o_.input_names, g_.inputs.size(), "x", "input");
    outputs_ = names_for(o_.output_names, g_.outputs.size(), "y", "output");
    for (const Names& all : {inputs_, outputs_})
      for (const std::string& n : all)
        TD_CHECK(!n.empty() && b_.unique(n) == n, Value, "the name '{}' is given twice", n);
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      const Tensor& x = g_.inputs[i];
      b_.model.graph.inputs.push_back(b_.port(inputs_[i], spec_of(x)));
      value_of(x) = inputs_[i];
      for (int d = 0; d < x.dim(); ++d)
        if (x.shape()[d].is_symbolic()) b_.define_symbol(x.shape()[d], inputs_[i], d);
    }
  }

  std::string grad_name(const Graph::GradUse& u) const {
    for (size_t i = 0; i < g_.cells.size(); ++i)
      if (g_.cells[i].cell->slot().get() == u.slot.get()) return cell_names_[i] + ".grad";
    return "grad";
  }

  // Cells that are read become initializers; those that also change become inputs with a default.
  void bring_cells() {
    bool changes = false;
    for (const Graph::CellUse& u : g_.cells) changes |= u.exit.defined();
    for (const Graph::CellUse& u : g_.cells) {
      const Tensor now = u.cell->read();
      std::string name = u.cell->name.empty() ? "cell" : u.cell->name;
      // If the module's state_dict has this value, its name there is used.
      const Tensor* known = o_.state.find(name);
      if (known && known->defined() && known->impl()->data != now.impl()->data) name += ".value";
      cell_names_.push_back(b_.unique(name));
      next_names_.push_back(u.exit.defined() ? b_.unique(cell_names_.back() + ".next") : "");
      if (!u.entry.defined()) continue;
      value_of(u.entry) = cell_names_.back();
      const bool setting = changes && now.dim() == 0 && !u.cell->requires_grad();
      add_value(cell_names_.back(), now, u.exit.defined() || setting);
    }
    for (const Graph::GradUse& u : g_.grads)
      if (u.entry.defined() && u.read) {
        value_of(u.entry) = b_.unique(grad_name(u) + ".before");
        add_value(value_of(u.entry), u.slot->grad, true);
      } else if (u.entry.defined()) {
        value_of(u.entry) = b_.number(0, u.entry.dtype());
      }
  }
  void add_value(const std::string& name, const Tensor& v, bool as_input) {
    b_.model.graph.initializers.emplace_back(name, OnnxValue(v.contiguous()));
    weights_[name] = v;
    if (as_input) b_.model.graph.inputs.push_back(b_.port(name, spec_of(v)));
  }

  // Give a value the name of an output; one that already has a name is passed on.
  void put_out(const Tensor& t, const std::string& name) {
    std::string& v = value_of(t);
    bool made = false;
    for (const OnnxNode& n : b_.model.graph.nodes)
      for (const std::string& o : n.outputs) made |= o == v;
    if (made && taken_.insert(v).second) {
      b_.rename(v, name);
      for (Names& all : values_)
        for (std::string& other : all)
          if (&other != &v && other == v) other = name;
      v = name;
      taken_.insert(name);
    } else {
      OnnxNode n;
      n.op = "Identity";
      n.name = name;
      n.inputs = {v};
      n.outputs = {name};
      b_.model.graph.nodes.push_back(std::move(n));
    }
    b_.model.graph.outputs.push_back(b_.port(name, spec_of(t)));
  }

  static void count_reads(const OnnxGraph& g, std::set<std::string>& read) {
    for (const OnnxNode& n : g.nodes) {
      read.insert(n.inputs.begin(), n.inputs.end());
      for (const OnnxAttribute& a : n.attributes)
        for (const auto& inner : a.graph_list) count_reads(*inner, read);
    }
    for (const OnnxPort& p : g.outputs) read.insert(p.name);
  }

  void drop_unused() {
    OnnxGraph& g = b_.model.graph;
    std::set<std::string> read;
    for (const OnnxPort& p : g.outputs) read.insert(p.name);
    std::vector<OnnxNode> kept;
    for (size_t k = g.nodes.size(); k-- > 0;) {
      OnnxNode& n = g.nodes[k];
      bool used = false;
      for (const std::string& o : n.outputs) used |= read.count(o) > 0;
      if (!used) continue;
      read.insert(n.inputs.begin(), n.inputs.end());
      for (const OnnxAttribute& a : n.attributes)
        for (const auto& inner : a.graph_list) count_reads(*inner, read);
      // Trailing results that nobody reads need no name.
      while (n.outputs.size() > 1 && !read.count(n.outputs.back())) n.outputs.pop_back();
      kept.push_back(std::move(n));
    }
    g.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
    for (const OnnxPort& p : g.inputs) read.insert(p.name);
    std::erase_if(g.initializers, [&](const auto& i) { return !read.count(i.first); });
  }

  void finish() {
    OnnxModelProto& m = b_.model;
    m.ir_version = ir_version_of(o_.opset);
    m.producer = "Tandem";
    m.opsets[""] = o_.opset;
    if (!b_.custom.empty()) m.opsets[kOnnxTandem] = 1;
    m.graph.name = "main";
    report_.nodes = m.graph.nodes.size();
    report_.initializers = m.graph.initializers.size();
  }

  // ---- files

  std::string folder() const {
    const size_t slash = path_.str().rfind('/');
    return slash == std::string::npos ? "" : path_.str().substr(0, slash + 1);
  }

  static bool same_bytes(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
    const Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
    return a.numel() == 0 || std::memcmp(x.impl()->data, y.impl()->data,
                                         static_cast<size_t>(a.numel()) * size_of(a.dtype())) == 0;
  }

  bool holds_all(const std::string& file, const StateDict& want) const {
    if (!file_exists(file)) return false;
    try {
      const StateDict have = load(file);
      for (const auto& [name, t] : want) {
        const Tensor* other = have.find(name);
        if (!other || !same_bytes(t, *other)) return false;
      }
    } catch (const Error&) {
      return false;  // another kind of file: it is overwritten
    }
    return true;
  }

  std::map<std::string, OnnxExternalData> write_weights() {
    StateDict all = o_.state;
    for (const auto& [name, v] : weights_)
      if (!all.contains(name)) all[name] = v;
    if (all.empty()) return {};
    std::string file = o_.weights;
    if (file.empty()) {
      file = path_.str().substr(folder().size());
      if (file.ends_with(".onnx")) file.resize(file.size() - 5);
      file += ".safetensors";
    }
    TD_CHECK(file.find('/') == std::string::npos, Value,
             "the weights file is in the model's folder, '{}' is a path\nGive a name.", file);
    const std::string whole = folder() + file;
    if (!holds_all(whole, all)) {
      written_.emplace_back(whole);
      save(all, whole, {{"format", "pt"}});
    }
    // Offset of each tensor, from the header.
    const auto mapped = Ref<MappedFile>::adopt(new MappedFile(whole));
    uint64_t header = 0;
    std::memcpy(&header, mapped->data(), 8);
    const io::Json json = io::parse_json(mapped->view().substr(8, header), whole);
    std::map<std::string, OnnxExternalData> out;
    for (const auto& [name, v] : weights_) {
      if (v.numel() == 0) continue;
      const io::Json* at = json.find(name);
      if (!at)  // a file of an earlier version, which had tied tensors once
        at = json.find(*json.find("__metadata__")->find("tandem.alias." + name)->as_string());
      const io::Json::Array& ends = *at->find("data_offsets")->as_array();
      const auto begin = static_cast<uint64_t>(*ends[0].as_int()),
                 end = static_cast<uint64_t>(*ends[1].as_int());
      out[name] = {file, 8 + header + begin, end - begin};
      report_.weight_bytes += end - begin;
    }
    return out;
  }

  void write() {
    std::map<std::string, OnnxExternalData> external;
    if (o_.external_data) external = write_weights();
    const std::string bytes = write_onnx_model(b_.model, external);
    report_.model_bytes = bytes.size();
    written_.emplace_back(path_.str());
    write_file(path_, bytes);
  }

  // ---- the model read back

  // The function's results, with all state restored afterwards.
  std::vector<Tensor> expected() const {
    std::vector<Tensor> before, grads, out;
    std::vector<bool> consumed;
    for (const Graph::CellUse& u : g_.cells) before.push_back(u.cell->read());
    for (const Graph::GradUse& u : g_.grads) {
      grads.push_back(u.slot->grad);
      consumed.push_back(u.slot->consumed);
    }
    const GeneratorState state = generator_state();
    const auto restore = [&] {
      NoGradGuard no_grad;
      for (size_t i = 0; i < before.size(); ++i)
        if (g_.cells[i].exit.defined()) g_.cells[i].cell->assign(before[i], SourceLocation{});
      for (size_t i = 0; i < grads.size(); ++i) {
        g_.grads[i].slot->set(grads[i]);
        g_.grads[i].slot->consumed = consumed[i];
      }
      set_generator_state(state);
    };
    try {
      out = tandem::run(g_, examples_);
      for (const Graph::CellUse& u : g_.cells)
        if (u.exit.defined()) out.push_back(u.cell->read());
      for (const Graph::GradUse& u : g_.grads)
        if (stored(u)) out.push_back(u.slot->grad);
    } catch (...) {
      restore();
      throw;
    }
    restore();
    return out;
  }

  void verify() {
    NoGradGuard no_grad;
    const std::vector<Tensor> want = expected();
    const OnnxModel model = OnnxModel::load(path_);
    const std::vector<Tensor> got = model({examples_.begin(), examples_.end()});
    TD_ASSERT(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const std::string& name = model.outputs()[i].name;
      TD_CHECK(got[i].dtype() == want[i].dtype() && got[i].shape() == want[i].shape(), Internal,
               "'{}' read back gives {} as '{}', the function {}", path_.str(),
               spec_of(got[i]).to_string(), name, spec_of(want[i]).to_string());
      if (!report_.random) compare(got[i], want[i], name);
    }
    report_.largest_error = report_.random ? -1 : std::max(report_.largest_error, 0.0);
    report_.relative_error = report_.random ? -1 : std::max(report_.relative_error, 0.0);
  }

  void compare(const Tensor& got, const Tensor& want, const std::string& name) {
    const std::vector<double> x = got.to(DType::f64).to_vector<double>(),
                              y = want.to(DType::f64).to_vector<double>();
    double largest = 0, scale = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
      const double apart = std::abs(x[i] - y[i]);
      largest = apart <= largest ? largest : apart;
    }
    for (const double v : y)
      if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
    report_.largest_error = std::max(report_.largest_error, largest);
    report_.relative_error = std::max(report_.relative_error, scale > 0 ? largest / scale : 0);
    if (largest <= o_.atol + o_.rtol * scale) return;
    TD_FAIL(Internal,
            "read back, the output '{}' is {:.3g} away from the function's result (values up to "
            "{:.3g})\nThe model was not kept.",
            name, largest, scale);
  }

  const Graph& g_;
  std::span<const Tensor> examples_;
  const FilePath& path_;
  const OnnxExportOptions& o_;
  OnnxBuilder b_;
  OnnxBuilder::Values values_;
  Names inputs_, outputs_, cell_names_, next_names_;
  std::set<std::string> taken_;
  StateDict weights_;
  OnnxExportReport report_;
  std::list<WrittenFile> written_;
};

}  // namespace

std::vector<Spec> export_specs(std::span<const Tensor> examples,
                               const std::vector<DynamicDim>& dynamic) {
  std::vector<Spec> specs;
  for (size_t i = 0; i < examples.size(); ++i) {
    Spec s = spec_of(examples[i]);
    for (const DynamicDim& d : dynamic)
      if ((d.argument < 0 || d.argument == static_cast<int64_t>(i)) &&
          (d.argument >= 0 || (d.dim < s.rank() && d.dim >= -s.rank())))
        s.shape[normalize_dim(d.dim, s.rank())] = Dim::symbol(d.name);
    specs.push_back(s);
  }
  return specs;
}

OnnxExportReport export_onnx_function(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                                      std::span<const Tensor> examples, const FilePath& path,
                                      const OnnxExportOptions& options) {
  TD_CHECK(options.opset >= kLeastOpset && options.opset <= kMostOpset, Value,
           "opset {} is not supported\nUse one from {} to {}.", options.opset, kLeastOpset,
           kMostOpset);
  const std::vector<Spec> specs = export_specs(examples, options.dynamic);
  std::unique_ptr<bool[]> requires_grad(new bool[examples.size()]);
  for (size_t i = 0; i < examples.size(); ++i) requires_grad[i] = examples[i].requires_grad();
  const Ref<Graph> g = trace(f, specs, Captures::refuse, {requires_grad.get(), examples.size()});
  TD_CHECK(!g->outputs.empty() || !g->cells.empty(), Value, "the function returns nothing");
  return Exporter(*g, examples, path, options).run();
}

std::string OnnxExportReport::to_string() const {
  std::string s = fmt::format("{} nodes, {} weights", nodes, initializers);
  if (weight_bytes > 0) s += fmt::format(" of {} bytes", weight_bytes);
  if (!states.empty()) s += fmt::format(", {} of them state", states.size());
  if (random)
    s += "; random numbers: compared by shape only";
  else if (largest_error >= 0)
    s += fmt::format("; read back: largest error {:.3g}, {:.3g} of the largest value",
                     largest_error, relative_error);
  if (!conditions.empty()) s += fmt::format("; expects {}", fmt::join(conditions, ", "));
  if (!custom_ops.empty()) s += fmt::format("; in the domain tandem: {}", custom_ops.size());
  for (const std::string& c : custom_ops) s += " " + c;
  return s;
}

}  // namespace tandem::onnx
