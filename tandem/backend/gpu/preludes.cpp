// SPDX-License-Identifier: Apache-2.0
// None allows a product and a sum to be contracted; division and square root round correctly (in
// OpenCL where the device offers it, an option of the build). So these give the host's bits.
#include "tandem/backend/gpu/preludes_internal.h"

namespace tandem::gpu {

constinit const std::string_view kCTypes = R"td_text(
typedef signed char td_i8;
typedef unsigned char td_u8;
typedef short td_i16;
typedef unsigned short td_u16;
typedef int td_i32;
typedef unsigned int td_u32;
typedef long long td_i64;
typedef unsigned long long td_u64;
typedef float td_f32;
typedef double td_f64;
)td_text";

constinit const std::string_view kCudaPrelude = R"td_text(
#define td_global
#define td_shared
#define td_thread(d) (threadIdx.d)
#define td_block(d) (blockIdx.d)
#define td_threads(d) (blockDim.d)
#define td_blocks(d) (gridDim.d)
#define td_barrier() __syncthreads()
#define td_fma_f32(a, b, c) __fmaf_rn(a, b, c)
#define td_fma_f64(a, b, c) __fma_rn(a, b, c)
#define td_sqrt_f32(a) __fsqrt_rn(a)
#define td_sqrt_f64(a) __dsqrt_rn(a)
)td_text";

constinit const std::string_view kOpenclPrelude = R"td_text(
#pragma OPENCL FP_CONTRACT OFF
typedef char td_i8;
typedef uchar td_u8;
typedef short td_i16;
typedef ushort td_u16;
typedef int td_i32;
typedef uint td_u32;
typedef long td_i64;
typedef ulong td_u64;
typedef float td_f32;
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double td_f64;
#define td_fma_f64(a, b, c) fma((td_f64)(a), (td_f64)(b), (td_f64)(c))
#define td_sqrt_f64(a) sqrt((td_f64)(a))
#endif
#define td_global __global
#define td_shared __local
#define td_axis_x 0
#define td_axis_y 1
#define td_axis_z 2
#define td_thread(d) ((td_u32)get_local_id(td_axis_##d))
#define td_block(d) ((td_u32)get_group_id(td_axis_##d))
#define td_threads(d) ((td_u32)get_local_size(td_axis_##d))
#define td_blocks(d) ((td_u32)get_num_groups(td_axis_##d))
#define td_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define td_fma_f32(a, b, c) fma((td_f32)(a), (td_f32)(b), (td_f32)(c))
#define td_sqrt_f32(a) sqrt((td_f32)(a))
)td_text";

constinit const std::string_view kHostPrelude = R"td_text(
struct td_axes { td_u32 x, y, z; };
struct td_grid {
  struct td_axes thread, block, threads, blocks;
  char* shared;
  void (*barrier)(struct td_grid*);
};
#define td_global
#define td_shared
#define td_thread(d) (td_self->thread.d)
#define td_block(d) (td_self->block.d)
#define td_threads(d) (td_self->threads.d)
#define td_blocks(d) (td_self->blocks.d)
#define td_barrier() td_self->barrier(td_self)
#define td_fma_f32(a, b, c) __builtin_fmaf(a, b, c)
#define td_fma_f64(a, b, c) __builtin_fma(a, b, c)
#define td_sqrt_f32(a) __builtin_sqrtf(a)
#define td_sqrt_f64(a) __builtin_sqrt(a)
)td_text";

}  // namespace tandem::gpu
