/* SPDX-License-Identifier: Apache-2.0 */
/* A call of the net of capi_net.h: ids int64[4] and x float32[4, 3] to y float32[4, 2] and
 * top int64[4]. C99 and C++. */
#ifndef TDM_TESTS_CAPI_NET_CALL_H
#define TDM_TESTS_CAPI_NET_CALL_H

#include <stdint.h>
#include <string.h>

#include "tandem_c.h"

typedef struct net_call {
  int64_t ids[4], top[4];
  float x[12], y[8];
  tandem_tensor in[2], out[2];
  size_t in_count, out_count;
  int no_inputs, no_outputs; /* NULL */
} net_call;

/* A call with nothing wrong. */
static inline net_call* right_call(net_call* c) {
  static const int64_t ids[4] = {0, 8, 3, 5};
  int i;
  memset(c, 0, sizeof *c);
  memcpy(c->ids, ids, sizeof ids);
  for (i = 0; i < 12; ++i) c->x[i] = (float)i * 0.125f - 0.5f;
  c->in[0].data = c->ids;
  c->in[0].bytes = sizeof c->ids;
  c->in[0].dtype = TANDEM_INT64;
  c->in[0].rank = 1;
  c->in[0].sizes[0] = 4;
  c->in[1].data = c->x;
  c->in[1].bytes = sizeof c->x;
  c->in[1].dtype = TANDEM_FLOAT32;
  c->in[1].rank = 2;
  c->in[1].sizes[0] = 4;
  c->in[1].sizes[1] = 3;
  c->out[0].data = c->y;
  c->out[0].bytes = sizeof c->y;
  c->out[1].data = c->top;
  c->out[1].bytes = sizeof c->top;
  c->in_count = c->out_count = 2;
  return c;
}

static inline tandem_status run_call(tandem_model* model, net_call* c) {
  return tandem_run(model, c->no_inputs ? NULL : c->in, c->in_count, c->no_outputs ? NULL : c->out,
                    c->out_count);
}

#endif
