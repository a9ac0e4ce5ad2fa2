// SPDX-License-Identifier: Apache-2.0
// Checkpoints that no rank holds as a whole: each writes a safetensors file with its parts, under
// names that say where a part begins ("model/conv.weight@128"). Ranks of another job, of any
// number, take what belongs to them from all files, which are mapped.
#include <algorithm>
#include <cstring>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/dist/sharded_params_internal.h"
#include "tandem/io/json.h"
#include "tandem/io/safetensors.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

constexpr const char* kIndexFile = "index.json";

std::string part_file(const std::string& folder, int64_t rank, int64_t ranks) {
  return fmt::format("{}/rank-{:05}-of-{:05}.safetensors", folder, rank + 1, ranks);
}

// Shapes of parameters, which their parts do not have: what "index.json" says of them.
io::Json shapes_of(const std::vector<NamedParam>& params) {
  io::Json::Object shapes;
  for (const NamedParam& p : params) {
    io::Json::Array dims;
    const Shape shape = p.param.cell()->spec().shape;
    for (const int64_t d : shape.values()) dims.emplace_back(d);
    shapes.emplace_back(p.name, std::move(dims));
  }
  return shapes;
}

/// The tensors of all files: parts by what they are parts of and where they begin, and whole ones.
struct Parts {
  std::map<std::string, std::map<int64_t, Tensor>> parts;
  StateDict whole;
  io::Json::Object shapes;
  std::string folder;

  explicit Parts(const std::string& from) : folder(from) {
    const io::Json index = io::parse_json(read_file(folder + "/" + kIndexFile), kIndexFile);
    const io::Json* ranks = index.find("ranks");
    TD_CHECK(ranks && ranks->as_int() && *ranks->as_int() >= 1 && *ranks->as_int() <= 1 << 20,
             Format, "'{}/{}' does not say how many files there are", folder, kIndexFile);
    const io::Json* all = index.find("shapes");
    TD_CHECK(all && all->as_object(), Format, "'{}/{}' does not hold the parameters' shapes",
             folder, kIndexFile);
    shapes = *all->as_object();
    for (int64_t r = 0; r < *ranks->as_int(); ++r)
      for (const auto& [name, value] : load(part_file(folder, r, *ranks->as_int())))
        add(name, value);
  }
  // Throws Value for parameters that are not there or have another shape.
  void check(const std::vector<NamedParam>& params) const {
    std::map<std::string, std::string> here, there;
    const io::Json own = shapes_of(params);
    for (const auto& [name, shape] : *own.as_object()) here[name] = shape.dump();
    for (const auto& [name, shape] : shapes) there[name] = shape.dump();
    for (const auto& [name, shape] : here) {
      TD_CHECK(there.count(name), Value, "'{}' holds no '{}'", folder, name);
      TD_CHECK(there[name] == shape, Value, "'{}' is {} in '{}', {} here", name, there[name],
               folder, shape);
    }
  }
  // Elements [begin, end) of something, flat; throws Value where some are missing.
  Tensor take(const std::string& name, int64_t begin, int64_t end, DType dtype) const {
    const DeviceGuard here(cpu);
    const Tensor out = empty({end - begin}, dtype);
    int64_t filled = begin;
    const auto all = parts.find(name);
    std::map<int64_t, Tensor> pieces;
    if (all != parts.end())
      pieces = all->second;
    else if (const Tensor* one = whole.find(name))
      pieces[0] = one->flatten();
    for (const auto& [at, value] : pieces) {
      const int64_t from = std::max(filled, at), to = std::min(end, at + value.numel());
      if (at > filled || from >= to) continue;
      TD_CHECK(value.dtype() == dtype, Value, "'{}' is {} in '{}', {} here", name,
               to_string(value.dtype()), folder, to_string(dtype));
      std::memcpy(byte_at(out, from - begin), byte_at(value, from - at),
                  static_cast<size_t>(to - from) * size_of(dtype));
      filled = to;
    }
    TD_CHECK(filled == end, Value, "'{}' lacks elements {} to {} of '{}'", folder, filled, end,
             name);
    return out;
  }
  const Tensor& at(const std::string& name) const {
    const Tensor* v = whole.find(name);
    TD_CHECK(v, Value, "'{}' holds no '{}'", folder, name);
    return *v;
  }
  const Tensor& at(const std::string& name, const Cell& cell) const {
    const Tensor& v = at(name);
    const Spec spec = cell.spec();
    TD_CHECK(v.shape() == spec.shape && v.dtype() == spec.dtype, Value,
             "'{}' is {} {} in '{}', {} {} here", name, to_string(v.dtype()), v.shape().to_string(),
             folder, to_string(spec.dtype), spec.shape.to_string());
    return v;
  }

 private:
  void add(const std::string& name, const Tensor& value) {
    const size_t sign = name.rfind('@');
    if (sign == name.npos) {
      whole[name] = value;
      return;
    }
    const std::string begin = name.substr(sign + 1);
    TD_CHECK(
        !begin.empty() && begin.size() < 18 && begin.find_first_not_of("0123456789") == begin.npos,
        Format, "'{}' holds a part '{}' that does not say where it begins", folder, name);
    parts[name.substr(0, sign)][std::stoll(begin)] = value.flatten();
  }
};
}  // namespace

void DataParallel::save_sharded(const std::string& folder, const optim::Optimizer& optimizer) {
  const NoGradGuard no_grad;
  const bool main = engine_->rank() == 0;
  const int64_t ranks = sharded_ ? engine_->size() : 1;
  const std::string index = folder + "/" + kIndexFile;
  if (main) {
    make_folders(folder);
    if (file_exists(index)) remove_folder(index);
  }
  engine_->barrier({"checkpoint begins"}).wait();
  if (sharded_) sharded_->sync();
  StateDict out;
  const std::vector<NamedParam>& params = reducer_->params();
  std::map<std::string, size_t> number;
  for (size_t i = 0; i < params.size(); ++i) number[params[i].name] = i;
  const auto begin_of = [&](size_t i) { return sharded_ ? sharded_->places()[i].begin : 0; };
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor v = (sharded_ ? sharded_->places()[i].shard : params[i].param).value().flatten();
    if (v.numel() > 0) out[fmt::format("model/{}@{}", params[i].name, begin_of(i))] = v;
  }
  if (main) {
    for (const auto& [name, p] : net_.named_parameters())
      if (!number.count(name)) out["model/" + name] = p.value();
    for (const auto& [name, b] : net_.named_buffers()) out["model/" + name] = b.value();
  }
  for (const auto& [name, v] : optimizer.state_dict()) {
    const std::optional<size_t> i = owner_of(name, params);
    if (i && v.dim() > 0 && v.numel() > 0)
      out[fmt::format("optimizer/{}@{}", name, begin_of(*i))] = v.flatten();
    else if (main && !(i && v.dim() > 0))
      out["optimizer/" + name] = v;
  }
  if (sharded_ || main) save(out, part_file(folder, engine_->rank(), ranks));
  engine_->barrier({"checkpoint is written"}).wait();
  const io::Json about = io::Json::Object{{"ranks", ranks}, {"shapes", shapes_of(params)}};
  if (main) write_file(index, about.dump() + "\n");  // now it is a checkpoint
  engine_->barrier({"checkpoint ends"}).wait();
}

void DataParallel::load_sharded(const std::string& folder, optim::Optimizer& optimizer) {
  const NoGradGuard no_grad;
  const Parts parts(folder);
  const std::vector<NamedParam>& params = reducer_->params();
  std::map<std::string, size_t> number;
  parts.check(params);
  const auto range = [&](size_t i, const Tensor& own) {
    return sharded_ ? std::pair(sharded_->places()[i].begin, sharded_->places()[i].end)
                    : std::pair(int64_t{0}, own.numel());
  };
  StateDict moments;
  for (const auto& [name, v] : optimizer.state_dict()) {
    const std::optional<size_t> i = owner_of(name, params);
    if (!i || (v.dim() == 0 && parts.whole.contains("optimizer/" + name))) {
      moments[name] = parts.at("optimizer/" + name);
      continue;
    }
    const auto [begin, end] = range(*i, v);
    moments[name] = parts.take("optimizer/" + name, begin, end, v.dtype()).reshape(v.shape());
  }
  std::vector<std::pair<Param, Tensor>> values;
  for (size_t i = 0; i < params.size(); ++i) {
    number[params[i].name] = i;
    const Param p = sharded_ ? sharded_->places()[i].shard : params[i].param;
    const auto [begin, end] = range(i, p.value());
    values.emplace_back(
        p, parts.take("model/" + params[i].name, begin, end, p.dtype()).reshape(p.shape()));
  }
  for (const auto& [name, p] : net_.named_parameters())
    if (!number.count(name)) values.emplace_back(p, parts.at("model/" + name, *p.cell()));
  std::vector<std::pair<Buffer, Tensor>> buffers;
  for (const auto& [name, b] : net_.named_buffers())
    buffers.emplace_back(b, parts.at("model/" + name, *b.cell()));
  optimizer.load_state_dict(moments);  // nothing has changed before this
  for (const auto& [p, v] : values) p.assign_(v);
  for (const auto& [b, v] : buffers) b.assign_(v);
  if (sharded_) sharded_->sync();
}

}  // namespace tandem::distributed
