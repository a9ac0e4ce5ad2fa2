// SPDX-License-Identifier: Apache-2.0
// oneDNN's C++ header over a library that is opened when its first function is called: a process
// that runs none of its kernels does not hold its pages. Included in the place of dnnl.hpp, which
// calls the C functions by names without a namespace; in its own namespace it finds those below.
#pragma once

#include <oneapi/dnnl/dnnl.h>

/// The C functions that this folder calls, mostly through the C++ header. One that is missing here
/// is an undefined symbol when libtandem is linked.
#define TD_ONEDNN_FUNCTIONS(F)                               \
  F(dnnl_convolution_backward_data_primitive_desc_create)    \
  F(dnnl_convolution_backward_weights_primitive_desc_create) \
  F(dnnl_convolution_forward_primitive_desc_create)          \
  F(dnnl_engine_create)                                      \
  F(dnnl_engine_destroy)                                     \
  F(dnnl_get_effective_cpu_isa)                              \
  F(dnnl_matmul_primitive_desc_create)                       \
  F(dnnl_memory_create_v2)                                   \
  F(dnnl_memory_desc_clone)                                  \
  F(dnnl_memory_desc_create_submemory)                       \
  F(dnnl_memory_desc_create_with_strides)                    \
  F(dnnl_memory_desc_create_with_tag)                        \
  F(dnnl_memory_desc_destroy)                                \
  F(dnnl_memory_desc_equal)                                  \
  F(dnnl_memory_desc_get_size_v2)                            \
  F(dnnl_memory_desc_query)                                  \
  F(dnnl_memory_destroy)                                     \
  F(dnnl_memory_set_data_handle)                             \
  F(dnnl_primitive_attr_create)                              \
  F(dnnl_primitive_attr_destroy)                             \
  F(dnnl_primitive_attr_set_scratchpad_mode)                 \
  F(dnnl_primitive_create)                                   \
  F(dnnl_primitive_desc_destroy)                             \
  F(dnnl_primitive_desc_query)                               \
  F(dnnl_primitive_desc_query_md)                            \
  F(dnnl_primitive_destroy)                                  \
  F(dnnl_primitive_execute)                                  \
  F(dnnl_reorder_primitive_desc_create)                      \
  F(dnnl_set_max_cpu_isa)                                    \
  F(dnnl_stream_create)                                      \
  F(dnnl_stream_destroy)                                     \
  F(dnnl_version)

namespace tandem::detail::onednn {

struct Library {
#define TD_MEMBER(name) decltype(&::name) name = nullptr;
  TD_ONEDNN_FUNCTIONS(TD_MEMBER)
#undef TD_MEMBER
};
/// Opens it at the first call, with the limit that TANDEM_ISA sets. Throws Unsupported where it is
/// not there.
const Library& library();

}  // namespace tandem::detail::onednn

namespace dnnl {
#define TD_FUNCTION(name)                                \
  inline constexpr auto name = [](auto... a) {           \
    return tandem::detail::onednn::library().name(a...); \
  };
TD_ONEDNN_FUNCTIONS(TD_FUNCTION)
#undef TD_FUNCTION
}  // namespace dnnl

#include <oneapi/dnnl/dnnl.hpp>
