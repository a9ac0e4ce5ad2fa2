/* SPDX-License-Identifier: Apache-2.0 */
/* What a carrier is: a plugin that moves the bytes of large calls through a library of the site
 * (MPI, Gloo). The engine finds the ranks, compares their calls, names faults and keeps what a
 * carrier does not take; a carrier only moves and reduces. Plain C, so that a plugin may be built
 * by another compiler than the library. Plugins export tandem_carrier(). See plugins/carriers/ for
 * two. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TANDEM_CARRIER_ABI 1

enum TandemCarrierKind {
  TANDEM_ALL_REDUCE,     /* out, count elements: becomes the reduction */
  TANDEM_REDUCE_SCATTER, /* in: size times count elements; out: this rank's count, reduced */
  TANDEM_ALL_GATHER,     /* in: count elements; out: size times count */
  TANDEM_BROADCAST,      /* out, count elements: those of rank root */
  TANDEM_ALL_TO_ALL      /* in and out: size times count elements */
};
/* Kinds that only move bytes come with TANDEM_U8. */
enum TandemCarrierType {
  TANDEM_U8,
  TANDEM_I8,
  TANDEM_I16,
  TANDEM_I32,
  TANDEM_I64,
  TANDEM_F32,
  TANDEM_F64
};
enum TandemCarrierOp { TANDEM_SUM, TANDEM_MIN, TANDEM_MAX };

typedef struct TandemCarrierCall {
  int kind, type, op, root;
  const void* in; /* not for all_reduce and broadcast */
  void* out;
  int64_t count;
  double timeout; /* seconds without progress after which a call that waits gives an error */
} TandemCarrierCall;

/* The ranks that meet. */
typedef struct TandemCarrierGroup {
  int rank, size;
  const int* members;  /* rank of each in the whole job */
  uint64_t id;         /* the same for all of the group, another one for each group of a job */
  const char* address; /* an address of this machine by which the others reach it */
  /* Gives every rank's `bytes` bytes, in order of the ranks; all ranks call it. 0, or -1. */
  int (*all_gather)(void* context, const void* own, int64_t bytes, void* all);
  void* context;
} TandemCarrierGroup;

/* A text of the error, ended by 0, is written to `error`, which has `capacity` bytes. Calls of one
 * group come from one thread at a time. */
typedef struct TandemCarrier {
  uint32_t abi;       /* TANDEM_CARRIER_ABI */
  const char* name;   /* "mpi" */
  uint32_t kinds;     /* bits 1 << kind */
  int64_t most_count; /* elements of a call; 0: any number */
  /* Meets the others; all ranks call it. NULL: an error. */
  void* (*open)(const TandemCarrierGroup* group, char* error, size_t capacity);
  /* Begins a call, whose memory stays until test() says that it has ended. 0, or -1: an error. */
  int (*begin)(void* state, const TandemCarrierCall* call, char* error, size_t capacity);
  /* 1: the call has ended; 0: not yet; -1: an error. */
  int (*test)(void* state, char* error, size_t capacity);
  /* `failed`: the group ended by a fault, and others may be gone. */
  void (*close)(void* state, int failed);
} TandemCarrier;

/* The function that a plugin exports. */
typedef const TandemCarrier* (*TandemCarrierFunction)(void);

#ifdef __cplusplus
}
#endif
