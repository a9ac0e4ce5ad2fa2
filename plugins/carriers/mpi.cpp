// SPDX-License-Identifier: Apache-2.0
// The carrier "mpi": built against the site's mpi.h, since every MPI has its own binary interface.
// By hand: mpicxx -std=c++17 -O2 -shared -fPIC -I PREFIX/include -o libtandem_mpi.so mpi.cpp
// The C interface is all that is used; its old C++ classes are in two libraries.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "tandem/dist/carrier.h"

namespace {

// Groups have threads of their own, and MPI is asked for no more than one at a time.
std::mutex g_one;
int g_open = 0;
bool g_ours = false, g_failed = false;

struct State {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
};

bool failed(int code, const char* what, char* error, size_t capacity) {
  if (code == MPI_SUCCESS) return false;
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(code, text, &n);
  std::snprintf(error, capacity, "%s: %s", what, text);
  g_failed = true;
  return true;
}

bool start(char* error, size_t capacity) {
  int on = 0, ended = 0, level = 0;
  MPI_Finalized(&ended);
  if (ended) {
    std::snprintf(error, capacity, "MPI has ended in this process and cannot start again");
    return false;
  }
  MPI_Initialized(&on);
  if (on) {
    MPI_Query_thread(&level);
  } else {
    if (failed(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread",
               error, capacity))
      return false;
    g_ours = true;
  }
  if (level >= MPI_THREAD_SERIALIZED) return true;
  std::snprintf(
      error, capacity,
      "MPI was started for one thread; ask MPI_Init_thread for MPI_THREAD_SERIALIZED or more");
  return false;
}

void* open(const TandemCarrierGroup* g, char* error, size_t capacity) {
  const std::lock_guard<std::mutex> hold(g_one);
  if (!start(error, capacity)) return nullptr;
  int size = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (g->members[g->rank] != rank || *std::max_element(g->members, g->members + g->size) >= size) {
    std::snprintf(
        error, capacity,
        "MPI says that this is rank %d of %d, the job that it is rank %d. Start the program "
        "by mpirun or srun",
        rank, size, g->members[g->rank]);
    return nullptr;
  }
  auto* s = new State;
  MPI_Group all = MPI_GROUP_NULL, own = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, g->size, g->members, &own);
  const int code =
      MPI_Comm_create_group(MPI_COMM_WORLD, own, static_cast<int>(g->id & 0x3fff), &s->comm);
  MPI_Group_free(&own);
  MPI_Group_free(&all);
  if (failed(code, "MPI_Comm_create_group", error, capacity)) {
    delete s;
    return nullptr;
  }
  MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
  ++g_open;
  return s;
}

MPI_Datatype type_of(int type) {
  switch (type) {
    case TANDEM_I8:
      return MPI_INT8_T;
    case TANDEM_I16:
      return MPI_INT16_T;
    case TANDEM_I32:
      return MPI_INT32_T;
    case TANDEM_I64:
      return MPI_INT64_T;
    case TANDEM_F32:
      return MPI_FLOAT;
    case TANDEM_F64:
      return MPI_DOUBLE;
    default:
      return MPI_UINT8_T;
  }
}

int begin(void* state, const TandemCarrierCall* c, char* error, size_t capacity) {
  const std::lock_guard<std::mutex> hold(g_one);
  auto* s = static_cast<State*>(state);
  const MPI_Datatype type = type_of(c->type);
  const MPI_Op op = c->op == TANDEM_SUM ? MPI_SUM : c->op == TANDEM_MIN ? MPI_MIN : MPI_MAX;
  const int n = static_cast<int>(c->count);
  int code = MPI_ERR_OTHER;
  const char* call = "a call that this carrier does not make";
  switch (c->kind) {
    case TANDEM_ALL_REDUCE:
      call = "MPI_Iallreduce";
      code = MPI_Iallreduce(MPI_IN_PLACE, c->out, n, type, op, s->comm, &s->request);
      break;
    case TANDEM_REDUCE_SCATTER:
      call = "MPI_Ireduce_scatter_block";
      code = MPI_Ireduce_scatter_block(c->in, c->out, n, type, op, s->comm, &s->request);
      break;
    case TANDEM_ALL_GATHER:
      call = "MPI_Iallgather";
      code = MPI_Iallgather(c->in, n, type, c->out, n, type, s->comm, &s->request);
      break;
    case TANDEM_BROADCAST:
      call = "MPI_Ibcast";
      code = MPI_Ibcast(c->out, n, type, c->root, s->comm, &s->request);
      break;
    case TANDEM_ALL_TO_ALL:
      call = "MPI_Ialltoall";
      code = MPI_Ialltoall(c->in, n, type, c->out, n, type, s->comm, &s->request);
      break;
  }
  return failed(code, call, error, capacity) ? -1 : 0;
}

int test(void* state, char* error, size_t capacity) {
  const std::lock_guard<std::mutex> hold(g_one);
  int done = 0;
  if (failed(MPI_Test(&static_cast<State*>(state)->request, &done, MPI_STATUS_IGNORE), "MPI_Test",
             error, capacity))
    return -1;
  return done;
}

// After a fault a call may be under way that nobody tests any more: MPI is not ended in order then.
void close(void* state, int after_fault) {
  const std::lock_guard<std::mutex> hold(g_one);
  g_failed |= after_fault != 0;
  auto* s = static_cast<State*>(state);
  if (!g_failed) MPI_Comm_free(&s->comm);
  delete s;
  if (--g_open == 0 && g_ours && !g_failed) MPI_Finalize();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const TandemCarrier* tandem_carrier() {
  static const TandemCarrier self{
      TANDEM_CARRIER_ABI, "mpi", 0x1f, 1 << 30, open, begin, test, close};
  return &self;
}
