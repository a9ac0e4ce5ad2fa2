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
#define td_first(p, code) (atomicCAS((int*)(p), 0, code) == 0)
#define td_unroll _Pragma("unroll")
#define td_line(type, name, n) __align__(16) type name[n]
template <int bytes> struct td_piece { typedef uint4 type; };
template <> struct td_piece<8> { typedef uint2 type; };
template <> struct td_piece<4> { typedef td_u32 type; };
template <> struct td_piece<2> { typedef td_u16 type; };
template <int n, class T>
static __device__ __forceinline__ void td_move_line(T* to, const T* from) {
  typedef typename td_piece<n * sizeof(T)>::type Piece;
#pragma unroll
  for (int k = 0; k < (int)(n * sizeof(T) / sizeof(Piece)); ++k)
    ((Piece*)to)[k] = ((const Piece*)from)[k];
}
#define td_load(n, x, p, i) td_move_line<n>(x, (p) + (i) * n)
#define td_store(n, p, i, x) td_move_line<n>((p) + (i) * n, x)
#define __builtin_fabsf(a) fabsf(a)
#define __builtin_fabs(a) fabs(a)
#define __builtin_fmodf(a, b) fmodf(a, b)
#define __builtin_fmod(a, b) fmod(a, b)
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#ifndef __INT64_TYPE__
#define __INT64_TYPE__ long long
#define __UINT64_TYPE__ unsigned long long
#define __INT32_TYPE__ int
#define __INT16_TYPE__ short
#define __INT8_TYPE__ signed char
#define __UINT8_TYPE__ unsigned char
#define __UINT16_TYPE__ unsigned short
#endif
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
#undef max
#undef min
#undef fmax
#undef fmin
#define td_first(p, code) (atomic_cmpxchg((volatile __global int*)(p), 0, code) == 0)
#define td_unroll
#define td_line(type, name, n) type name[n]
#define td_load(n, x, p, i) vstore##n(vload##n(i, p), 0, x)
#define td_store(n, p, i, x) vstore##n(vload##n(0, x), i, p)
#define __builtin_fabsf(a) fabs((float)(a))
#define __builtin_fabs(a) fabs((double)(a))
#define __builtin_fmodf(a, b) fmod((float)(a), (float)(b))
#define __builtin_fmod(a, b) fmod((double)(a), (double)(b))
#define __builtin_inff() as_float(0x7f800000u)
#define __builtin_inf() as_double(0x7ff0000000000000ul)
#ifndef __INT64_TYPE__
#define __INT64_TYPE__ long
#define __UINT64_TYPE__ ulong
#define __INT32_TYPE__ int
#define __INT16_TYPE__ short
#define __INT8_TYPE__ char
#define __UINT8_TYPE__ uchar
#define __UINT16_TYPE__ ushort
#endif
)td_text";

constinit const std::string_view kHostPrelude = R"td_text(
struct td_axes { td_u32 x, y, z; };
struct td_grid {
  struct td_axes thread, block, threads, blocks;
  char* shared;
  void (*barrier)(struct td_grid*);
  char* lanes;
  void (*meet)(struct td_grid*);
  td_u32 turn;
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
#define td_first(p, code) (*(p) == 0 ? (*(p) = (code), 1) : 0)
#define td_unroll
#define td_line(type, name, n) type name[n] __attribute__((aligned(16)))
static void td_move_line(void* to, const void* from, const void* memory, td_u64 bytes) {
  const td_u64 most = bytes < 16 ? bytes : 16;
  if ((td_u64)memory % most != 0) __builtin_trap();
  __builtin_memcpy(to, from, bytes);
}
#define td_load(n, x, p, i) td_move_line(x, (p) + (i) * n, (p) + (i) * n, n * sizeof *(p))
#define td_store(n, p, i, x) td_move_line((p) + (i) * n, x, (p) + (i) * n, n * sizeof *(p))
)td_text";

// The first report of a device stays until it is read: code, ticket of the call, value.
constinit const std::string_view kReports = R"td_text(
#define td_report(code, value)                                 \
  do {                                                         \
    if (td_first(td_error, code)) {                            \
      const td_u64 td_reported = (td_u64)(td_i64)(value);      \
      td_error[1] = td_ticket;                                 \
      td_error[2] = (td_i32)(td_u32)td_reported;               \
      td_error[3] = (td_i32)(td_u32)(td_reported >> 32);       \
    }                                                          \
  } while (0)
)td_text";

}  // namespace tandem::gpu
