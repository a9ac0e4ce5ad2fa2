// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/server_messages_internal.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "tandem/base/error.h"
#include "tandem/dist/reduce_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

int64_t bytes_of_spec(const Cell& c) {
  const Spec s = c.spec();
  return s.shape.numel().value() * static_cast<int64_t>(size_of(s.dtype));
}

char* copy_out(const Tensor& value, char* to) {
  const Tensor own = value.cpu().contiguous();
  const size_t bytes = static_cast<size_t>(own.numel()) * size_of(own.dtype());
  if (bytes > 0) std::memcpy(to, own.impl()->data, bytes);
  return to + bytes;
}

const char* copy_in(Cell& cell, const char* from) {
  const Spec s = cell.spec();
  Tensor value = empty(s.shape, s.dtype);
  const auto bytes = static_cast<size_t>(bytes_of_spec(cell));
  if (bytes > 0) std::memcpy(value.impl()->data, from, bytes);
  cell.assign(value.to(s.device), SourceLocation::here());
  return from + bytes;
}

}  // namespace

double server_patience() { return 12 * engine_options().timeout; }

std::vector<int> servers_of(const nn::Module& net, int servers) {
  std::vector<int64_t> moved, load(static_cast<size_t>(servers));
  std::unordered_set<const Cell*> seen;
  for (const auto& [name, p] : net.named_parameters())
    if (seen.insert(p.cell().get()).second)
      moved.push_back(bytes_of_spec(*p.cell()) * (p.requires_grad() ? 2 : 1));
  for (const auto& [name, b] : net.named_buffers())
    if (seen.insert(b.cell().get()).second) load[0] += 2 * bytes_of_spec(*b.cell());
  std::vector<size_t> order(moved.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return moved[a] > moved[b]; });
  std::vector<int> owner(moved.size());
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += moved[i];
    owner[i] = static_cast<int>(least - load.begin());
  }
  return owner;
}

FlatNet::FlatNet(const nn::Module& net, int servers, int server) {
  const std::vector<int> owner = servers_of(net, servers);
  std::unordered_set<const Cell*> seen;
  for (const auto& [name, p] : net.named_parameters()) {
    const size_t i = seen.size();
    if (!seen.insert(p.cell().get()).second || owner[i] != server) continue;
    params_.push_back(p);
    param_bytes_ += bytes_of_spec(*p.cell());
    if (p.requires_grad()) {
      trained_.push_back(p);
      gradient_bytes_ += bytes_of_spec(*p.cell());
    }
    lines_.push_back(fmt::format("parameter '{}' {}{}{}", name, to_string(p.dtype()),
                                 p.shape().to_string(), p.requires_grad() ? "" : ", frozen"));
  }
  if (server > 0) return;
  for (const auto& [name, b] : net.named_buffers()) {
    if (!seen.insert(b.cell().get()).second) continue;
    buffers_.push_back(b);
    buffer_bytes_ += bytes_of_spec(*b.cell());
    lines_.push_back(
        fmt::format("buffer '{}' {}{}", name, to_string(b.dtype()), b.shape().to_string()));
  }
}

std::vector<std::string> FlatNet::lines() const { return lines_; }

void FlatNet::values_to(char* to, int64_t version) const {
  const NoGradGuard no_grad;
  std::memcpy(to, &version, sizeof version);
  to += kVersionBytes;
  for (const Param& p : params_) to = copy_out(p.value().detach(), to);
  for (const Buffer& b : buffers_) to = copy_out(b.value(), to);
}

int64_t FlatNet::values_from(const char* from) const {
  const NoGradGuard no_grad;
  int64_t version = 0;
  std::memcpy(&version, from, sizeof version);
  from += kVersionBytes;
  for (const Param& p : params_) from = copy_in(*p.cell(), from);
  for (const Buffer& b : buffers_) from = copy_in(*b.cell(), from);
  return version;
}

void FlatNet::result_to(char* to) const {
  const NoGradGuard no_grad;
  char* flag = to;
  to += trained_.size();
  for (const Param& p : trained_) {
    const Tensor g = p.grad();
    *flag++ = g.defined();
    const auto bytes = static_cast<size_t>(bytes_of_spec(*p.cell()));
    if (g.defined())
      copy_out(g.detach().to(p.dtype()), to);
    else
      std::memset(to, 0, bytes);
    to += bytes;
  }
  for (const Buffer& b : buffers_) to = copy_out(b.value(), to);
}

void FlatNet::results_from(const std::vector<const char*>& parts) const {
  const NoGradGuard no_grad;
  auto at = static_cast<int64_t>(trained_.size());
  for (size_t i = 0; i < trained_.size(); ++i) {
    const Param& p = trained_[i];
    const bool used =
        std::any_of(parts.begin(), parts.end(), [&](const char* part) { return part[i] != 0; });
    if (used) {
      // The copies give each part the alignment of its dtype.
      std::vector<Tensor> own;
      std::vector<const void*> all;
      for (const char* part : parts) {
        own.push_back(empty(p.shape(), p.dtype()));
        std::memcpy(own.back().impl()->data, part + at,
                    static_cast<size_t>(bytes_of_spec(*p.cell())));
        all.push_back(own.back().impl()->data);
      }
      const Array sum{own[0].impl()->data, own[0].numel(), p.dtype()};
      if (parts.size() > 1) {
        reduce_parts(all, sum.data, sum.count, sum.dtype, ReduceOp::sum);
        divide(sum, static_cast<double>(parts.size()));
      }
      p.set_grad(own[0].to(p.device()));
    } else {
      p.zero_grad();
    }
    at += bytes_of_spec(*p.cell());
  }
  const char* from = parts[0] + at;
  for (const Buffer& b : buffers_) from = copy_in(*b.cell(), from);
}

// ---- states

std::vector<char> bytes_of_state(const StateDict& state) {
  const NoGradGuard no_grad;
  std::vector<char> out;
  const auto add = [&out](const void* from, size_t n) {
    const char* begin = static_cast<const char*>(from);
    out.insert(out.end(), begin, begin + n);
  };
  const auto number = [&add](int64_t n) { add(&n, sizeof n); };
  for (const auto& [name, value] : state) {
    const Tensor own = value.cpu().contiguous();
    number(static_cast<int64_t>(name.size()));
    add(name.data(), name.size());
    number(static_cast<int64_t>(own.dtype()));
    number(own.dim());
    for (const int64_t d : own.shape().values()) number(d);
    if (own.numel() > 0)
      add(own.impl()->data, static_cast<size_t>(own.numel()) * size_of(own.dtype()));
  }
  return out;
}

StateDict state_of_bytes(const std::vector<char>& bytes) {
  const DeviceGuard here(cpu);
  size_t at = 0;
  const auto take = [&](void* to, size_t n) {
    TD_CHECK(n <= bytes.size() - at, Format, "a server's state ends after {} bytes", bytes.size());
    if (n > 0) std::memcpy(to, bytes.data() + at, n);
    at += n;
  };
  const auto number = [&take](int64_t most) {
    int64_t n = 0;
    take(&n, sizeof n);
    TD_CHECK(n >= 0 && n <= most, Format, "a server's state has {} where at most {} may be", n,
             most);
    return n;
  };
  StateDict state;
  while (at < bytes.size()) {
    const auto size = static_cast<int64_t>(bytes.size());
    std::string name(static_cast<size_t>(number(size)), ' ');
    take(name.data(), name.size());
    const auto dtype = static_cast<DType>(number(kDTypeCount - 1));
    std::vector<Dim> shape(static_cast<size_t>(number(kMaxRank)));
    for (Dim& d : shape) d = number(size);
    Tensor value = empty(Shape(shape), dtype);
    take(value.impl()->data, static_cast<size_t>(value.numel()) * size_of(dtype));
    state[name] = value;
  }
  return state;
}

}  // namespace tandem::distributed
