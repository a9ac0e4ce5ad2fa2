/* SPDX-License-Identifier: Apache-2.0 */
/* Right and wrong calls of tandem_c.h. Prints what is not as expected; its status is how often. The
 * same program runs with libtandem and with libtandem-mini. C99 and C++. Usage: misuse [MODEL] */
#include <stdio.h>

#include "net_call.h"

static int misuse_failures;

static void misuse_expect(const char *what, tandem_status got, tandem_status want, const char *says) {
  const char *text = tandem_last_error();
  if (got == want && (got == TANDEM_OK || strstr(text, says))) return;
  printf("%s: expected %s '%s', got %s '%s'\n", what, tandem_status_name(want), says,
         tandem_status_name(got), text);
  ++misuse_failures;
}

/* ---- one thing wrong each */

static void no_input_tensors(net_call *c) { c->no_inputs = 1; }
static void one_input(net_call *c) { c->in_count = 1; }
static void endless_inputs(net_call *c) { c->in_count = (size_t)-1; }
static void one_output(net_call *c) { c->out_count = 1; }
static void no_output_tensors(net_call *c) { c->no_outputs = 1; }
static void unknown_name(net_call *c) { c->in[1].name = "z"; }
static void unknown_output(net_call *c) { c->out[0].name = "x"; }
static void twice(net_call *c) { c->in[1].name = "ids"; }
static void no_dtype(net_call *c) { c->in[1].dtype = 0; }
static void another_dtype(net_call *c) { c->in[1].dtype = TANDEM_FLOAT64; }
static void odd_dtype(net_call *c) { c->in[1].dtype = 99; }
static void negative_dtype(net_call *c) { c->in[0].dtype = INT32_MIN; }
static void output_dtype(net_call *c) { c->out[1].dtype = TANDEM_INT32; }
static void rank_of_one(net_call *c) { c->in[1].rank = 1; }
static void negative_rank(net_call *c) { c->in[1].rank = -7; }
static void large_rank(net_call *c) { c->in[1].rank = 1 << 30; }
static void another_size(net_call *c) { c->in[1].sizes[1] = 4; }
static void negative_size(net_call *c) { c->in[1].sizes[0] = -4; }
static void huge_size(net_call *c) { c->in[1].sizes[0] = INT64_MAX; }
static void few_bytes(net_call *c) { c->in[1].bytes = 47; }
static void many_bytes(net_call *c) { c->in[1].bytes = 52; }
static void no_data(net_call *c) { c->in[0].data = NULL; }
static void odd_data(net_call *c) { c->in[1].data = (char *)c->x + 1; }
static void small_buffer(net_call *c) { c->out[0].bytes = 31; }
static void empty_buffer(net_call *c) { c->out[1].bytes = 0; }
static void no_buffer(net_call *c) { c->out[0].data = NULL; }
static void odd_buffer(net_call *c) { c->out[0].data = (char *)c->y + 2, c->out[0].bytes = 30; }
static void same_buffers(net_call *c) { c->out[0].data = c->top; }
static void in_place(net_call *c) { c->out[0].data = c->x; }
static void large_index(net_call *c) { c->ids[2] = 9; }

static const struct misuse {
  const char *what;
  void (*change)(net_call *);
  tandem_status status;
  const char *says;
} misuses[] = {
    {"no inputs", no_input_tensors, TANDEM_ERROR_ARGUMENT, "the model has 2 inputs, got NULL"},
    {"one input", one_input, TANDEM_ERROR_ARGUMENT, "the model has 2 inputs, got 1"},
    {"endless inputs", endless_inputs, TANDEM_ERROR_ARGUMENT, "the model has 2 inputs, got "},
    {"one output", one_output, TANDEM_ERROR_ARGUMENT, "the model has 2 outputs, got 1"},
    {"no outputs", no_output_tensors, TANDEM_ERROR_ARGUMENT, "the model has 2 outputs, got NULL"},
    {"a name", unknown_name, TANDEM_ERROR_ARGUMENT, "there is no input 'z'; the model has 'ids', 'x'"},
    {"an output's name", unknown_output, TANDEM_ERROR_ARGUMENT,
     "there is no output 'x'; the model has 'y', 'top'"},
    {"twice", twice, TANDEM_ERROR_ARGUMENT, "input 'ids' is given twice"},
    {"no dtype", no_dtype, TANDEM_ERROR_DTYPE,
     "input 'x': expected float32[4, 3], got dtype 0[4, 3]"},
    {"another dtype", another_dtype, TANDEM_ERROR_DTYPE,
     "input 'x': expected float32[4, 3], got float64[4, 3]"},
    {"an odd dtype", odd_dtype, TANDEM_ERROR_DTYPE, "got dtype 99[4, 3]"},
    {"a negative dtype", negative_dtype, TANDEM_ERROR_DTYPE, "got dtype -2147483648[4]"},
    {"an output's dtype", output_dtype, TANDEM_ERROR_DTYPE,
     "output 'top': the model gives int64, the buffer is of int32"},
    {"rank 1", rank_of_one, TANDEM_ERROR_SHAPE,
     "input 'x': expected float32[4, 3], got float32[4]"},
    {"rank -7", negative_rank, TANDEM_ERROR_SHAPE, "got float32 of rank -7"},
    {"rank 2^30", large_rank, TANDEM_ERROR_SHAPE, "got float32 of rank 1073741824"},
    {"a size", another_size, TANDEM_ERROR_SHAPE, "expected float32[4, 3], got float32[4, 4]"},
    {"a negative size", negative_size, TANDEM_ERROR_SHAPE, "got float32[-4, 3]"},
    {"a huge size", huge_size, TANDEM_ERROR_SHAPE, "got float32[9223372036854775807, 3]"},
    {"few bytes", few_bytes, TANDEM_ERROR_SHAPE, "input 'x': float32[4, 3] has 48 bytes, got 47"},
    {"many bytes", many_bytes, TANDEM_ERROR_SHAPE, "has 48 bytes, got 52"},
    {"no data", no_data, TANDEM_ERROR_ARGUMENT, "input 'ids': data is NULL, and bytes is 32"},
    {"odd data", odd_data, TANDEM_ERROR_ARGUMENT,
     "input 'x': data is not aligned to an element of float32"},
    {"a small buffer", small_buffer, TANDEM_ERROR_TOO_SMALL,
     "output 'y': float32[4, 2] needs 32 bytes, the buffer has 31"},
    {"an empty buffer", empty_buffer, TANDEM_ERROR_TOO_SMALL, "output 'top': int64[4] needs 32 bytes"},
    {"no buffer", no_buffer, TANDEM_ERROR_ARGUMENT, "output 'y': data is NULL, and bytes is 32"},
    {"an odd buffer", odd_buffer, TANDEM_ERROR_ARGUMENT, "output 'y': data is not aligned"},
    {"one buffer for both", same_buffers, TANDEM_ERROR_ARGUMENT,
     "the buffers of output 1 and output 0 overlap"},
    {"in place", in_place, TANDEM_ERROR_ARGUMENT, "the buffers of output 0 and input 1 overlap"},
    {"an index", large_index, TANDEM_ERROR_INDEX, "out of range"},
};

static void misuse_of_run(tandem_model *model) {
  size_t k;
  net_call c, r;
  misuse_expect("a right call", run_call(model, right_call(&r)), TANDEM_OK, "");
  for (k = 0; k < sizeof misuses / sizeof *misuses; ++k) {
    right_call(&c);
    misuses[k].change(&c);
    misuse_expect(misuses[k].what, run_call(model, &c), misuses[k].status, misuses[k].says);
    if (misuses[k].status != TANDEM_ERROR_INDEX && (c.y[0] != 0 || c.top[0] != 0 || c.top[3] != 0)) {
      printf("%s: a buffer was written\n", misuses[k].what);
      ++misuse_failures;
    }
  }
  right_call(&c)->out[0].bytes = 1;
  run_call(model, &c);
  if (c.out[0].rank != 2 || c.out[0].sizes[0] != 4 || c.out[0].sizes[1] != 2 ||
      c.out[0].dtype != TANDEM_FLOAT32 || c.out[0].bytes != 1) {
    printf("a small buffer is not told what it needs\n");
    ++misuse_failures;
  }
  /* By name, in another order. */
  right_call(&c);
  {
    const tandem_tensor first = c.in[0];
    c.in[0] = c.in[1];
    c.in[1] = first;
    c.in[0].name = "x";
    c.in[1].name = "ids";
  }
  misuse_expect("by name", run_call(model, &c), TANDEM_OK, "");
  if (memcmp(c.y, r.y, sizeof c.y) != 0 || memcmp(c.top, r.top, sizeof c.top) != 0) {
    printf("by name: other values\n");
    ++misuse_failures;
  }
}

static void misuse_of_results(tandem_model *model) {
  net_call c, r;
  tandem_tensor t;
  run_call(model, right_call(&r));
  misuse_expect("no result", tandem_result(model, 0, &t), TANDEM_ERROR_ARGUMENT, "no results");
  right_call(&c)->no_outputs = 1;
  c.out_count = 0;
  misuse_expect("results", run_call(model, &c), TANDEM_OK, "");
  misuse_expect("a result", tandem_result(model, 0, &t), TANDEM_OK, "");
  if (t.bytes != sizeof r.y || memcmp(t.data, r.y, sizeof r.y) != 0 || strcmp(t.name, "y") != 0 ||
      t.dtype != TANDEM_FLOAT32 || t.rank != 2) {
    printf("a result: other values\n");
    ++misuse_failures;
  }
  misuse_expect("result 2", tandem_result(model, 2, &t), TANDEM_ERROR_ARGUMENT,
                "there is no output 2; the model has 2");
  misuse_expect("nowhere", tandem_result(model, 0, NULL), TANDEM_ERROR_ARGUMENT, "tensor is NULL");
}

static void misuse_of_questions(tandem_model *model) {
  tandem_tensor t;
  size_t a = 7, b = 7;
  misuse_expect("count", tandem_count(model, &a, &b), TANDEM_OK, "");
  if (a != 2 || b != 2) printf("count: %d, %d\n", (int)a, (int)b), ++misuse_failures;
  misuse_expect("count of inputs", tandem_count(model, &a, NULL), TANDEM_ERROR_ARGUMENT,
                "outputs is NULL");
  misuse_expect("count of outputs", tandem_count(model, NULL, &b), TANDEM_ERROR_ARGUMENT,
                "inputs is NULL");
  misuse_expect("input 1", tandem_input(model, 1, &t), TANDEM_OK, "");
  if (strcmp(t.name, "x") != 0 || t.rank != 2 || t.sizes[0] != 4 || t.sizes[1] != 3 || t.data ||
      t.bytes || t.dtype != TANDEM_FLOAT32)
    printf("input 1 is not x\n"), ++misuse_failures;
  misuse_expect("output 1", tandem_output(model, 1, &t), TANDEM_OK, "");
  if (strcmp(t.name, "top") != 0 || t.rank != 1 || t.sizes[0] != 4 || t.dtype != TANDEM_INT64)
    printf("output 1 is not top\n"), ++misuse_failures;
  misuse_expect("input 2", tandem_input(model, 2, &t), TANDEM_ERROR_ARGUMENT, "there is no input 2");
  misuse_expect("output -1", tandem_output(model, (size_t)-1, &t), TANDEM_ERROR_ARGUMENT,
                "there is no output ");
  misuse_expect("input nowhere", tandem_input(model, 0, NULL), TANDEM_ERROR_ARGUMENT, "is NULL");
  misuse_expect("find", tandem_find_output(model, "top", &a), TANDEM_OK, "");
  if (a != 1) printf("top is output %d\n", (int)a), ++misuse_failures;
  misuse_expect("find z", tandem_find_input(model, "z", &a), TANDEM_ERROR_ARGUMENT, "no input 'z'");
  misuse_expect("find NULL", tandem_find_input(model, NULL, &a), TANDEM_ERROR_ARGUMENT,
                "name is NULL");
  misuse_expect("find nowhere", tandem_find_output(model, "y", NULL), TANDEM_ERROR_ARGUMENT,
                "at is NULL");
}

static void misuse_of_handle(const char *what, tandem_model *model, const char *says) {
  const tandem_status bad = TANDEM_ERROR_HANDLE;
  net_call c;
  tandem_tensor t;
  size_t a, b;
  misuse_expect(what, run_call(model, right_call(&c)), bad, says);
  misuse_expect(what, tandem_count(model, &a, &b), bad, says);
  misuse_expect(what, tandem_input(model, 0, &t), bad, says);
  misuse_expect(what, tandem_output(model, 0, &t), bad, says);
  misuse_expect(what, tandem_find_input(model, "x", &a), bad, says);
  misuse_expect(what, tandem_find_output(model, "y", &a), bad, says);
  misuse_expect(what, tandem_result(model, 0, &t), bad, says);
  if (model) misuse_expect(what, tandem_free(model), bad, says);
}

static void misuse_of_load(const char *path, tandem_model **model) {
  tandem_load_options options;
  tandem_model *other = (tandem_model *)&options;
  misuse_expect("load nowhere", tandem_load(path, NULL, NULL), TANDEM_ERROR_ARGUMENT, "model is NULL");
  memset(&options, 0, sizeof options);
  misuse_expect("options without size", tandem_load(path, &options, &other), TANDEM_ERROR_ARGUMENT,
                "options->struct_bytes is 0, expected sizeof(tandem_load_options)");
  if (other) printf("a load that fails leaves its model\n"), ++misuse_failures;
  options.struct_bytes = sizeof options;
  options.device = "cpu";
  misuse_expect("load", tandem_load(path, &options, model), TANDEM_OK, "");
  misuse_expect("threads", tandem_set_threads(-1), TANDEM_ERROR_ARGUMENT, "from 1 to 1024");
  misuse_expect("threads nowhere", tandem_get_threads(NULL), TANDEM_ERROR_ARGUMENT, "count is NULL");
}

static int misuse(const char *path) {
  tandem_model *model = NULL;
  misuse_failures = 0;
  misuse_of_handle("NULL", NULL, "the model is NULL");
  misuse_of_load(path, &model);
  misuse_of_questions(model);
  misuse_of_run(model);
  misuse_of_results(model);
  misuse_expect("free NULL", tandem_free(NULL), TANDEM_OK, "");
  misuse_expect("free", tandem_free(model), TANDEM_OK, "");
  misuse_of_handle("freed", model, "it was freed, or never was one");
  misuse_of_handle("no model", (tandem_model *)&model, "it was freed, or never was one");
  /* The next one is another: the old handle does not become good again. */
  {
    tandem_model *next = NULL;
    misuse_expect("load again", tandem_load(path, NULL, &next), TANDEM_OK, "");
    misuse_of_handle("freed, and another loaded", model, "it was freed, or never was one");
    misuse_expect("free again", tandem_free(next), TANDEM_OK, "");
  }
  if (strcmp(tandem_status_name(TANDEM_ERROR_INTERNAL), "internal") != 0 ||
      strcmp(tandem_status_name(-1), "unknown") != 0 || tandem_dtype_bytes(TANDEM_BOOL) != 1 ||
      tandem_dtype_bytes(11) != 0 || strcmp(tandem_dtype_name(TANDEM_BFLOAT16), "bfloat16") != 0 ||
      strcmp(tandem_dtype_name(-1), "unknown") != 0 || !*tandem_version())
    printf("a name is wrong\n"), ++misuse_failures;
  return misuse_failures;
}

#ifndef TANDEM_IN_PROCESS
int main(int argc, char **argv) { return misuse(argc > 1 ? argv[1] : NULL); }
#endif
