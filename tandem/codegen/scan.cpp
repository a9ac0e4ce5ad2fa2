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
constexpr int64_t kTurned = 16;  ///< elements of a line that are turned at once: a cache line

// Between lines, which lie along memory, and tiles, `width` elements apart.
template <class T>
void turn_in_as(void* tiles, int64_t width, const void* lines, int64_t stride, int64_t n,
                int64_t count) {
  for (int64_t i = 0; i < n; ++i) {
    const T* from = static_cast<const T*>(lines) + i * stride;
    T* to = static_cast<T*>(tiles) + i;
    for (int64_t e = 0; e < count; ++e) to[e * width] = from[e];
  }
}
template <class T>
void turn_out_as(const void* tiles, int64_t width, void* lines, int64_t stride, int64_t n,
                 int64_t count) {
  for (int64_t i = 0; i < n; ++i) {
    const T* from = static_cast<const T*>(tiles) + i;
    T* to = static_cast<T*>(lines) + i * stride;
    for (int64_t e = 0; e < count; ++e) to[e] = from[e * width];
  }
}
template <class F>
void by_size(size_t element_size, const F& f) {
  switch (element_size) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    default:
      return f(uint64_t());
  }
}

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

  // Does array k (x, outputs) run along its lines, so that a tile would take from all over memory?
  bool turned(int k) const { return step[k] == 1 && lines.inner_stride(k) != 1; }
  bool any_turned() const {
    for (int k = 0; k <= call.n_out; ++k) {
      if (turned(k)) return true;
    }
    return false;
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
           PlanRunner::scratch_bytes(s.plans.finish, width) + (width * 8 + 64) * kMaxStates +
           (moved_bytes(s, width) + 64) * (1 + s.call.n_out);
  }
  static int64_t moved_bytes(const Scan& s, int64_t width) {
    return width * 8 * (s.any_turned() ? kTurned : 1);
  }

  Worker(const Scan& s, int64_t width)
      : s(s),
        width(width),
        scratch(bytes(s, width)),
        step(s.step_use, width, scratch),
        finish(s.finish_use, width, scratch) {
    for (char*& p : state) p = static_cast<char*>(scratch.take(width * 8));
    for (int k = 0; k <= s.call.n_out; ++k)
      moved[k] = static_cast<char*>(scratch.take(moved_bytes(s, width)));
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
    for (int64_t i = 0; i < s.length; i += kTurned) {
      const int64_t count = std::min(kTurned, s.length - i);
      if (turns(0, n)) turn_in(offset[0], n, count);
      int64_t from[1 + kMaxOpOuts];
      std::copy(offset, offset + 1 + s.call.n_out, from);
      for (int64_t e = 0; e < count; ++e) {
        if (p.uses_index) {
          step.set_value(p.n_states + 1, i + e);
          step.compute_values(nullptr);
        }
        element(offset, e, n);
        for (int k = 0; k <= s.call.n_out; ++k) offset[k] += s.step[k];
      }
      for (int k = 0; k < s.call.n_out; ++k) {
        if (turns(1 + k, n)) turn_out(k, from[1 + k], n, count);
      }
    }
  }

  bool turns(int k, int64_t n) const { return n > 1 && s.turned(k); }
  void turn_in(int64_t offset, int64_t n, int64_t count) {
    by_size(size_of(s.x.dtype), [&](auto type) {
      turn_in_as<decltype(type)>(moved[0], width, s.at(s.x, offset), s.lines.inner_stride(0), n,
                                 count);
    });
  }
  void turn_out(int k, int64_t offset, int64_t n, int64_t count) {
    const Array& y = s.call.out[k];
    by_size(size_of(y.dtype), [&](auto type) {
      turn_out_as<decltype(type)>(moved[1 + k], width, s.at(y, offset), s.lines.inner_stride(1 + k),
                                  n, count);
    });
  }
  // Tile e of what is turned of array a, whose number is k.
  char* turned_tile(int k, const Array& a, int64_t e) {
    return moved[k] + e * width * static_cast<int64_t>(size_of(a.dtype));
  }

  // Where output k of element e goes: to its place, or to a tile that is moved afterwards.
  char* result(int k, const int64_t* offset, int64_t e, int64_t n) {
    if (turns(1 + k, n)) return turned_tile(1 + k, s.call.out[k], e);
    const bool direct = s.lines.inner_stride(1 + k) == 1 || n == 1;
    return direct ? s.at(s.call.out[k], offset[1 + k]) : moved[1 + k];
  }
  // Element e of those that are turned at once.
  void element(const int64_t* offset, int64_t e, int64_t n) {
    char* tile = s.at(s.x, offset[0]);
    if (turns(0, n)) {
      tile = turned_tile(0, s.x, e);
    } else if (s.lines.inner_stride(0) != 1 && n > 1) {
      gather_run(moved[0], tile, s.lines.inner_stride(0), n, size_of(s.x.dtype));
      tile = moved[0];
    }
    if (s.p.widens) {
      tiles().wide_step[static_cast<int>(s.p.fold)](result(0, offset, e, n), state[0], tile, n);
    } else {
      step.set_in(s.p.n_states, tile);
      step.run(n, nullptr);
      for (int k = 0; k < s.call.n_out; ++k) finish.set_out(k, result(k, offset, e, n));
      finish.run(n, nullptr);
    }
    for (int k = 0; k < s.call.n_out; ++k) {
      const int64_t stride = s.lines.inner_stride(1 + k);
      if (stride == 1 || n == 1 || turns(1 + k, n)) continue;
      const Array& y = s.call.out[k];
      scatter_run(s.at(y, offset[1 + k]), moved[1 + k], stride, n, size_of(y.dtype));
    }
  }
};

void Scan::run_tiles() const {
  constexpr int64_t kWidth = 256, kWidthTurned = 64;  // what is turned stays in the first cache
  const int64_t inner = lines.inner(),
                width = std::min(inner, any_turned() ? kWidthTurned : kWidth);
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
