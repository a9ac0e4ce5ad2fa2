// SPDX-License-Identifier: Apache-2.0
// What the kernels of this folder share between a KernelCall and a launch.
#pragma once

#include <mutex>
#include <string>

#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/rows/indexing_internal.h"

namespace tandem::gpu {

/// `supports` of most kernels: the device has the types of all operands.
bool has_types(const KernelCall& c);
/// Can the device run kernels whose text holds the math prelude, which computes in f64 here and
/// there?
bool has_f64(const KernelCall& c);

/// An array's address, and the bytes up to its last element.
void argue_array(Arguments& a, const Array& x);
/// Nothing there: a kernel that does not look.
void argue_nothing(Arguments& a);

/// For kernels that call td_report(code, value).
void declare_reports(KernelSource& k);
void argue_reports(Arguments& a, Engine& e, const KernelCall& c);

/// Fill output 0 with a copy of `x`, unless it is x's own memory; without x with zeros.
void start_with(const KernelCall& c, const Array* x);

/// x with these strides, or in row-major order, at `to`. x has elements.
void copy_as(const KernelCall& c, const Array& x, Address to, const Strides& strides);
void copy_dense(const KernelCall& c, const Array& x, Address to);

/// Say in the log, once for each flag, that `rows` run by own kernels because the library of the
/// device's vendor is off; nothing for devices that have none.
void say_library_is_off(std::once_flag& said, const Engine& e, const char* rows,
                        const Status& status);

/// KernelId::variant of a kernel that depends on a walk, a dtype and little else.
uint64_t variant_of(const Walk& walk, DType t, uint64_t other = 0);

/// A kernel and nothing else that its launches need.
struct PlainKernel : Built {
  KernelRef kernel = nullptr;
};
/// The kernel for `id`, made of the text that `source` gives.
template <class Source>
KernelRef plain_kernel(Engine& e, const KernelId& id, Source&& source) {
  return e
      .built(id,
             [&] {
               auto made = std::make_unique<PlainKernel>();
               made->kernel = e.build(source());
               return made;
             })
      .kernel;
}
/// `text` with every @name@ replaced: pairs of name and text.
std::string filled_in(std::string text,
                      std::initializer_list<std::pair<const char*, std::string>> parts);

/// The element `x` of a parameter of this dtype as a register, and a register as stored: f16 and
/// bf16 are f32, integers and bool as they are.
std::string loaded(const std::string& x, DType t);
std::string stored(const std::string& x, DType t);
/// A td_i64, or a td_f64, as the row's reference converts it to an element of this dtype.
std::string stored_i64(const std::string& x, DType t);
std::string stored_f64(const std::string& x, DType t);
/// "td_f32" for f16, bf16 and f32; else td_type(t).
std::string register_type(DType t);

}  // namespace tandem::gpu
