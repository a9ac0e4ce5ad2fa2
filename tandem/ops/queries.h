// SPDX-License-Identifier: Apache-2.0
// Questions about tensors and dtypes under torch's names, and switches of the whole process.
#pragma once

#include <type_traits>

#include "tandem/base/parallel.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/rng.h"

namespace tandem {

// ---- dtypes
/// The dtype of an operation on both: a tensor with dimensions counts more than one without, and
/// that more than a number, within a category (PyTorch's promotion).
TD_API DType result_type(const Operand& a, const Operand& b);
/// The smallest dtype that holds values of both.
inline DType promote_types(DType a, DType b) { return promote(a, b); }
/// Whether values of `from` may be converted to `to` without changing category: not floats to
/// integers, nor numbers to bool.
TD_API bool can_cast(DType from, DType to);
/// Numbers that are written without a dtype are float32.
constexpr DType get_default_dtype() { return DType::f32; }

// ---- tensors
inline int64_t numel(const Tensor& x) { return x.numel(); }
inline bool is_floating_point(const Tensor& x) { return x.is_floating_point(); }
/// Whether the single element is not 0. Throws Shape for several. Reads the value.
TD_API bool is_nonzero(const Tensor& x, SourceLocation loc = SourceLocation::here());
template <class T>
constexpr bool is_tensor(const T&) {
  return std::is_same_v<T, Tensor>;
}

// ---- random numbers
/// The default generator's seed and offset, and back.
inline GeneratorState get_rng_state() { return generator_state(); }
inline void set_rng_state(GeneratorState state) { set_generator_state(state); }
/// Seed the generator with a number that is different each time, which is returned.
TD_API uint64_t seed();
inline uint64_t initial_seed() { return generator_state().seed; }

// ---- this process
inline int get_num_threads() { return num_threads(); }
/// Where ops without tensor inputs put their results; set it for a block with DeviceGuard.
TD_API Device get_default_device();
TD_API void set_default_device(Device device);
/// See DeterministicGuard, which does the same for a block.
inline void use_deterministic_algorithms(bool on) { context().deterministic = on; }
inline bool are_deterministic_algorithms_enabled() { return context().deterministic; }
/// There is no mode that only warns.
inline bool is_deterministic_algorithms_warn_only_enabled() { return false; }
/// 0: off, 2: on, as "default" and "error" in PyTorch. Throws Value for another mode.
TD_API void set_deterministic_debug_mode(int mode);
inline int get_deterministic_debug_mode() { return context().deterministic ? 2 : 0; }
inline bool is_inference_mode_enabled() { return !context().grad_enabled; }

// ---- guards, under the names of torch's context managers
using no_grad = NoGradGuard;
using enable_grad = EnableGradGuard;
using inference_mode = NoGradGuard;
using autocast = AutocastGuard;

}  // namespace tandem
