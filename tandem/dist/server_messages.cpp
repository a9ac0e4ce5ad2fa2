// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/server_messages_internal.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

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

FlatNet::FlatNet(const nn::Module& net) {
  std::unordered_set<const Cell*> seen;
  for (const auto& [name, p] : net.named_parameters()) {
    if (!seen.insert(p.cell().get()).second) continue;
    params_.push_back(p);
    param_bytes_ += bytes_of_spec(*p.cell());
    if (p.requires_grad()) {
      trained_.push_back(p);
      gradient_bytes_ += bytes_of_spec(*p.cell());
    }
    lines_.push_back(fmt::format("parameter '{}' {}{}{}", name, to_string(p.dtype()),
                                 p.shape().to_string(), p.requires_grad() ? "" : ", frozen"));
  }
  for (const auto& [name, b] : net.named_buffers()) {
    if (!seen.insert(b.cell().get()).second) continue;
    buffers_.push_back(b);
    buffer_bytes_ += bytes_of_spec(*b.cell());
    lines_.push_back(
        fmt::format("buffer '{}' {}{}", name, to_string(b.dtype()), b.shape().to_string()));
  }
}

std::vector<std::string> FlatNet::lines() const { return lines_; }

void FlatNet::values_to(char* to) const {
  const NoGradGuard no_grad;
  for (const Param& p : params_) to = copy_out(p.value().detach(), to);
  for (const Buffer& b : buffers_) to = copy_out(b.value(), to);
}

void FlatNet::values_from(const char* from) const {
  const NoGradGuard no_grad;
  for (const Param& p : params_) from = copy_in(*p.cell(), from);
  for (const Buffer& b : buffers_) from = copy_in(*b.cell(), from);
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

}  // namespace tandem::distributed
