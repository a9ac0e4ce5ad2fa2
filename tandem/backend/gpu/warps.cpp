// SPDX-License-Identifier: Apache-2.0
// Words of warps: 32 neighbouring threads that multiply matrices of 16-bit numbers together. All
// lanes of a warp call them at the same place. How fragments lie in registers is that of CUDA
// (NVIDIA, PTX ISA, mma.m16n8k16 and ldmatrix): lane 4 g + t holds, of a 16 x 16 matrix a, the
// pairs of columns from 2 t in rows g and g + 8, then those from 2 t + 8; of a 16 x 8 matrix b
// the pairs of rows from 2 t and from 2 t + 8 in column g; of a 16 x 8 matrix d columns 2 t and
// 2 t + 1 of row g, then of row g + 8.
#include "tandem/backend/gpu/preludes_internal.h"

namespace tandem::gpu {

constinit const std::string_view kCudaWarps = R"td_text(
typedef uint4 td_bytes16;
#define TD_WORD static __device__ __forceinline__
TD_WORD td_u32 td_shared_place(const void* p) { return (td_u32)__cvta_generic_to_shared(p); }
TD_WORD void td_load_matrices(td_u32* r, const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(td_shared_place(p)));
}
TD_WORD void td_load_transposed(td_u32* r, const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(td_shared_place(p)));
}
#define TD_MMA(name, type)                                                                  \
  TD_WORD void name(td_f32* d, const td_u32* a, td_u32 b0, td_u32 b1) {                     \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                      \
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                             \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                    \
  }
TD_MMA(td_mma_bf16, "bf16")
TD_MMA(td_mma_f16, "f16")
TD_WORD td_u32 td_pack_bf16(td_f32 low, td_f32 high) {
  td_u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
TD_WORD td_u32 td_pack_f16(td_f32 low, td_f32 high) {
  td_u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
TD_WORD td_f32 td_exp2(td_f32 x) {
  td_f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#define td_log2(x) log2f(x)
#define td_larger(a, b) fmaxf(a, b)
#define td_shuffle_xor(x, mask) __shfl_xor_sync(0xffffffffu, x, mask)
TD_WORD void td_copy_start(void* to, const void* from, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(td_shared_place(to)), "l"(__cvta_generic_to_global(from)),
                  "r"(valid ? 16 : 0) : "memory");
}
#define td_copy_commit() asm volatile("cp.async.commit_group;" ::: "memory")
#define td_copy_wait(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
)td_text";

// A lane shows what it has in one half of its place, meets the others and reads theirs; the next
// time it takes the other half, so that nobody overwrites what another still reads. A copy fills
// its target with NaN until somebody waits for it.
constinit const std::string_view kHostWarps = R"td_text(
typedef struct { td_u32 x, y, z, w; } td_bytes16;
struct td_copies {
  struct { td_u8* to; const td_u8* from; int valid, group; } at[128];
  int count, groups;
};
static char* td_lane_of(struct td_grid* g, td_u32 thread) {
  return g->lanes + thread * 64 + (g->turn & 1) * 32;
}
static void td_host_load(struct td_grid* g, td_u32* r, const void* p, int transposed) {
  const td_u32 lane = g->thread.x & 31, first = g->thread.x - lane;
  *(const void**)td_lane_of(g, g->thread.x) = p;
  g->meet(g);
  for (td_u32 m = 0; m < 4; ++m) {
    td_u32 v = 0;
    for (td_u32 i = 0; i < 2; ++i) {
      const td_u32 pair = (lane & 3) * 2 + i, other = lane >> 2;
      const td_u32 row = transposed ? pair : other, column = transposed ? other : pair;
      const td_u16* line = *(const td_u16* const*)td_lane_of(g, first + m * 8 + row);
      v |= (td_u32)line[column] << (16 * i);
    }
    r[m] = v;
  }
  ++g->turn;
}
static td_f32 td_host_half(td_u32 v, td_u32 i, int bf16) {
  const td_u32 bits = v >> (16 * (i & 1)) & 0xffff;
  return bf16 ? tdo_from_bf16((tdm_u16)bits) : tdo_from_f16((tdm_u16)bits);
}
static void td_host_mma(struct td_grid* g, td_f32* d, const td_u32* a, td_u32 b0, td_u32 b1,
                        int bf16) {
  const td_u32 lane = g->thread.x & 31, first = g->thread.x - lane;
  td_u32* mine = (td_u32*)td_lane_of(g, g->thread.x);
  for (int i = 0; i < 4; ++i) mine[i] = a[i];
  mine[4] = b0;
  mine[5] = b1;
  g->meet(g);
  for (td_u32 i = 0; i < 4; ++i) {
    const td_u32 row = (lane >> 2) + (i >> 1) * 8, column = (lane & 3) * 2 + (i & 1);
    double sum = (double)d[i];
    for (td_u32 k = 0; k < 16; ++k) {
      const td_u32* x = (const td_u32*)td_lane_of(g, first + (row & 7) * 4 + (k & 7) / 2);
      const td_u32* y = (const td_u32*)td_lane_of(g, first + column * 4 + (k & 7) / 2);
      sum += (double)td_host_half(x[(row >> 3) + (k >> 3) * 2], k, bf16) *
             (double)td_host_half(y[4 + (k >> 3)], k, bf16);
    }
    d[i] = (td_f32)sum;
  }
  ++g->turn;
}
static td_f32 td_host_shuffle(struct td_grid* g, td_f32 x, td_u32 mask) {
  *(td_f32*)td_lane_of(g, g->thread.x) = x;
  g->meet(g);
  const td_f32 other = *(const td_f32*)td_lane_of(g, g->thread.x ^ mask);
  ++g->turn;
  return other;
}
static void td_host_copy(struct td_copies* c, void* to, const void* from, int valid) {
  if (c->count == 128) __builtin_trap();
  for (int i = 0; i < 16; ++i) ((td_u8*)to)[i] = 0xff;
  c->at[c->count].to = (td_u8*)to;
  c->at[c->count].from = (const td_u8*)from;
  c->at[c->count].valid = valid;
  c->at[c->count++].group = c->groups;
}
static void td_host_wait(struct td_copies* c, int n) {
  int left = 0;
  for (int k = 0; k < c->count; ++k) {
    if (c->at[k].group + n >= c->groups) {
      c->at[left++] = c->at[k];
      continue;
    }
    for (int i = 0; i < 16; ++i) c->at[k].to[i] = c->at[k].valid ? c->at[k].from[i] : 0;
  }
  c->count = left;
}
#define td_load_matrices(r, p) td_host_load(td_self, r, p, 0)
#define td_load_transposed(r, p) td_host_load(td_self, r, p, 1)
#define td_mma_bf16(d, a, b0, b1) td_host_mma(td_self, d, a, b0, b1, 1)
#define td_mma_f16(d, a, b0, b1) td_host_mma(td_self, d, a, b0, b1, 0)
#define td_pack_bf16(a, b) ((td_u32)tdo_to_bf16(a) | (td_u32)tdo_to_bf16(b) << 16)
#define td_pack_f16(a, b) ((td_u32)tdo_to_f16(a) | (td_u32)tdo_to_f16(b) << 16)
#define td_exp2(x) __builtin_exp2f(x)
#define td_log2(x) __builtin_log2f(x)
#define td_larger(a, b) __builtin_fmaxf(a, b)
#define td_shuffle_xor(x, mask) td_host_shuffle(td_self, x, mask)
#define td_copy_start(to, from, valid) td_host_copy(&td_pending, to, from, valid)
#define td_copy_commit() ++td_pending.groups
#define td_copy_wait(n) td_host_wait(&td_pending, n)
)td_text";

}  // namespace tandem::gpu
