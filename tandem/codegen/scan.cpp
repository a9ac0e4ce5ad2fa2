// SPDX-License-Identifier: Apache-2.0
// Scans: one state per line along the scanned dimension, many lines at a time, element after
// element; a plain fold along memory uses a running loop per line. Lines are dealt to threads, the
// order within a line is sequential, so the bits never depend on the thread count.
#include <algorithm>

#include "tandem/base/parallel.h"
#include "tandem/codegen/plan_runner.h"
#include "tandem/codegen/reduce.h"
#include "tandem/codegen/reduce_plans.h"
#include "tandem/graph/reduce_attrs.h"

namespace tandem::codegen {
namespace {

constexpr double kSerialWork = 32 * 1024;

struct Scan {
  const ReduceProgram& p;
  const ReducePlans& plans;
  const KernelCall& call;
  const Array& x;
  const PlanUse step_use, finish_use;
  TileLoop lines;                     // all dimensions but the scanned one: x, outputs
  int64_t length = 1;                 // of a line
  int64_t step[1 + kMaxOpOuts] = {};  // along the line: x, outputs

  Scan(const ReduceProgram& p, const KernelCall& call)
      : p(p),
        plans(plans_of(p)),
        call(call),
        x(call.in[0]),
        step_use(plans.step_columns),
        finish_use(plans.finish) {
    const int dim = x.rank ? normalize_dim(call.get_attrs<ScanAttrs>().dim, x.rank) : 0;
    lines.n_arrays = 1 + call.n_out;
    for (int d = 0; d < x.rank; ++d) {
      const bool scanned = d == dim;
      if (scanned) length = x.shape[d];
      for (int k = 0; k <= call.n_out; ++k) {
        const int64_t stride = k ? call.out[k - 1].strides[d] : x.strides[d];
        (scanned ? step[k] : lines.stride[k][lines.rank]) = stride;
      }
      if (!scanned) lines.size[lines.rank++] = x.shape[d];
    }
    lines.normalise(0);
  }

  char* at(const Array& a, int64_t offset) const {
    return a.as<char>() + offset * static_cast<int64_t>(size_of(a.dtype));
  }

  // The loop that runs along a whole line; nullptr: there is none.
  PrefixFn running_loop() const {
    if (!p.is_fold || step[0] != 1 || step[1] != 1) return nullptr;
    const int fold = static_cast<int>(p.fold);
    if (p.widens) return tiles().wide_prefix[fold];
    const bool plain = p.map_is_x && p.finish_is_state && p.state[0] != Reg::b8;
    return plain ? tiles().prefix[fold][static_cast<int>(p.state[0])] : nullptr;
  }
  // One line after the other.
  void run_plain(PrefixFn prefix) const {
    const int64_t n = lines.rows() * lines.inner();
    parallel_for(0, n, grain(static_cast<double>(length)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t state = p.init[0];
        prefix(at(call.out[0], lines.offset_of(1, i)), &state, at(x, lines.offset_of(0, i)),
               length);
      }
    });
  }
  static int64_t grain(double unit) {
    return static_cast<int64_t>(std::max(1.0, kSerialWork / std::max(unit, 1.0)));
  }

  // Tiles of neighbouring lines.
  struct Worker;
  void run_tiles() const;
};

struct Scan::Worker {
  const Scan& s;
  int64_t width;
  TileScratch scratch;
  PlanRunner step, finish;
  char* state[kMaxStates];
  char* moved[1 + kMaxOpOuts];

  static int64_t bytes(const Scan& s, int64_t width) {
    return PlanRunner::scratch_bytes(s.plans.step_columns, width) +
           PlanRunner::scratch_bytes(s.plans.finish, width) +
           (width * 8 + 64) * (kMaxStates + 1 + kMaxOpOuts);
  }

  Worker(const Scan& s, int64_t width)
      : s(s),
        width(width),
        scratch(bytes(s, width)),
        step(s.step_use, width, scratch),
        finish(s.finish_use, width, scratch) {
    for (char*& p : state) p = static_cast<char*>(scratch.take(width * 8));
    for (char*& p : moved) p = static_cast<char*>(scratch.take(width * 8));
    for (int k = 0; k < s.p.n_states; ++k) {
      step.set_in(k, state[k]);
      step.set_out(k, state[k]);
      finish.set_in(k, state[k]);
    }
    finish.set_value(s.p.n_states, s.length);
    step.compute_values(nullptr);
    finish.compute_values(nullptr);
  }

  // Lines [first, first + n), all in one inner row of the loop.
  void run(int64_t first, int64_t n) {
    const ReduceProgram& p = s.p;
    int64_t offset[1 + kMaxOpOuts];
    for (int k = 0; k <= s.call.n_out; ++k) offset[k] = s.lines.offset_of(k, first);
    for (int k = 0; k < p.n_states; ++k) {
      const void* v = &p.init[k];
      tiles().fill[static_cast<int>(p.state[k])](state[k], v, v, v, v, n);
    }
    for (int64_t i = 0; i < s.length; ++i) {
      if (p.uses_index) {
        step.set_value(p.n_states + 1, i);
        step.compute_values(nullptr);
      }
      element(offset, n);
      for (int k = 0; k <= s.call.n_out; ++k) offset[k] += s.step[k];
    }
  }

  // Where output k of an element goes: to its place, or to a tile that is scattered afterwards.
  char* result(int k, const int64_t* offset, int64_t n) {
    const bool direct = s.lines.inner_stride(1 + k) == 1 || n == 1;
    return direct ? s.at(s.call.out[k], offset[1 + k]) : moved[1 + k];
  }
  void element(const int64_t* offset, int64_t n) {
    char* tile = s.at(s.x, offset[0]);
    if (s.lines.inner_stride(0) != 1 && n > 1) {
      gather_run(moved[0], tile, s.lines.inner_stride(0), n, size_of(s.x.dtype));
      tile = moved[0];
    }
    if (s.p.widens) {
      tiles().wide_step[static_cast<int>(s.p.fold)](result(0, offset, n), state[0], tile, n);
    } else {
      step.set_in(s.p.n_states, tile);
      step.run(n, nullptr);
      for (int k = 0; k < s.call.n_out; ++k) finish.set_out(k, result(k, offset, n));
      finish.run(n, nullptr);
    }
    for (int k = 0; k < s.call.n_out; ++k) {
      const int64_t stride = s.lines.inner_stride(1 + k);
      if (stride == 1 || n == 1) continue;
      const Array& y = s.call.out[k];
      scatter_run(s.at(y, offset[1 + k]), moved[1 + k], stride, n, size_of(y.dtype));
    }
  }
};

void Scan::run_tiles() const {
  constexpr int64_t kWidth = 256;
  const int64_t inner = lines.inner(), width = std::min(inner, kWidth);
  const int64_t per_row = (inner + width - 1) / width;
  const double unit =
      (plans.step_columns.cost + plans.finish.cost + 1) * static_cast<double>(length * width);
  parallel_for(0, lines.rows() * per_row, grain(unit), [&](int64_t begin, int64_t end) {
    Worker w(*this, width);
    for (int64_t u = begin; u < end; ++u) {
      const int64_t from = u % per_row * width;
      w.run(u / per_row * inner + from, std::min(width, inner - from));
    }
  });
}

}  // namespace

void run_scan(const KernelCall& call) {
  DType outs[kMaxOpOuts];
  for (int k = 0; k < call.n_out; ++k) outs[k] = call.out[k].dtype;
  if (call.out[0].numel == 0) return;
  const Scan scan(reduce_program_of(call.op, call.in[0].dtype, outs, call.n_out, 0), call);
  if (const PrefixFn prefix = scan.running_loop()) return scan.run_plain(prefix);
  scan.run_tiles();
}

const Kernel& scan_kernel() {
  static constexpr Kernel kernel{nullptr, nullptr, nullptr, run_scan};
  return kernel;
}

}  // namespace tandem::codegen
