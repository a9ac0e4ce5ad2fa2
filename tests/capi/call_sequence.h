/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes drive calls of tandem_c.h, right and wrong: models are loaded, asked, run with any counts,
 * dtypes and sizes, freed and used afterwards. Every status must be one of the header's, every
 * error must have a text, and results must be there to their last byte; else the program ends.
 * Pointers are always those of as much memory as is said. The includer has included tandem_c.h. C99
 * and C++. */
#ifndef TDM_TESTS_CAPI_CALL_SEQUENCE_H
#define TDM_TESTS_CAPI_CALL_SEQUENCE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSequenceModels = 4, kSequenceTensors = 5, kSequenceMemory = 4096, kSequenceCalls = 64 };

typedef struct call_sequence {
  const unsigned char* bytes;
  size_t left;
  tandem_status (*load)(tandem_model** model); /* one that succeeds */
  tandem_model* models[kSequenceModels];       /* loaded, freed, or never a model */
  tandem_tensor in[kSequenceTensors], out[kSequenceTensors];
  long succeeded;
} call_sequence;

static unsigned sequence_byte(call_sequence* s) {
  if (s->left == 0) return 0;
  --s->left;
  return *s->bytes++;
}

static uint64_t sequence_number(call_sequence* s) {
  static const uint64_t odd[] = {0,
                                 1,
                                 2,
                                 4,
                                 UINT32_MAX,
                                 UINT32_MAX / 2 + 1,
                                 UINT64_MAX,
                                 UINT64_MAX / 2,
                                 9,
                                 8,
                                 UINT64_MAX / 2 + 1,
                                 1u << 30};
  const unsigned b = sequence_byte(s);
  return b < 12 ? odd[b] : b < 128 ? (uint64_t)(b - 12) : (uint64_t)b << (sequence_byte(s) % 56);
}

static tandem_status sequence_check(call_sequence* s, tandem_status status) {
  const char* text = tandem_last_error();
  if (status < TANDEM_OK || status >= TANDEM_ERROR_INTERNAL || !text ||
      (status != TANDEM_OK && !*text)) {
    fprintf(stderr, "status %d '%s'\n", (int)status, text ? text : "NULL");
    abort();
  }
  if (status == TANDEM_OK) ++s->succeeded;
  return status;
}

/* Reads all that was given, so that sanitizers see it. */
static void sequence_touch(const tandem_tensor* t) {
  volatile unsigned kept;
  unsigned sum = 0;
  const unsigned char* data = (const unsigned char*)t->data;
  size_t i;
  for (i = 0; i < t->bytes; ++i) sum += data[i];
  if (t->name) sum += (unsigned)strlen(t->name);
  kept = sum;
  (void)kept;
}

static const char* sequence_name(unsigned b) {
  static const char* const names[] = {"x", "ids", "y", "top", "", "z", "input", NULL};
  return names[b % 8];
}

/* Changes one field of a tensor; data and bytes stay in the memory that is there. */
static void sequence_change(call_sequence* s, tandem_tensor* t, unsigned char* memory) {
  const uint64_t n = sequence_number(s);
  switch (sequence_byte(s) % 7) {
    case 0:
      t->name = sequence_name((unsigned)n);
      break;
    case 1:
      t->data = NULL;
      break;
    case 2:
      t->data = memory + n % (kSequenceMemory / 2);
      t->bytes = t->bytes < kSequenceMemory / 2 ? t->bytes : 0;
      break;
    case 3:
      t->bytes = t->data
                     ? (size_t)(n % (size_t)(memory + kSequenceMemory - (unsigned char*)t->data))
                     : (size_t)(n % 8);
      break;
    case 4:
      t->dtype = (tandem_dtype)(int64_t)n;
      break;
    case 5:
      t->rank = (int32_t)(int64_t)n;
      break;
    default:
      t->sizes[sequence_byte(s) % TANDEM_MAX_RANK] = (int64_t)n;
      break;
  }
}

/* Inputs and buffers as the model asks for them, open sizes from the bytes. */
static size_t sequence_tensors(call_sequence* s, tandem_model* model, int inputs, tandem_tensor* to,
                               unsigned char* memory) {
  size_t counts[2] = {0, 0}, k;
  const size_t part = kSequenceMemory / kSequenceTensors / 8 * 8;
  sequence_check(s, tandem_count(model, &counts[0], &counts[1]));
  memset(to, 0, kSequenceTensors * sizeof *to);
  for (k = 0; k < kSequenceTensors; ++k) {
    tandem_tensor* t = &to[k];
    uint64_t bytes;
    int32_t d;
    sequence_check(s, inputs ? tandem_input(model, k, t) : tandem_output(model, k, t));
    t->data = memory + k * part;
    bytes = tandem_dtype_bytes(t->dtype);
    for (d = 0; d < t->rank; ++d) {
      if (t->sizes[d] < 0) t->sizes[d] = (int64_t)(sequence_byte(s) % 6);
      bytes *= (uint64_t)t->sizes[d];
    }
    t->bytes = inputs && bytes < part ? (size_t)bytes : part;
  }
  return counts[inputs ? 0 : 1];
}

static void sequence_run(call_sequence* s, tandem_model* model) {
  unsigned char* memory = (unsigned char*)calloc(2, kSequenceMemory);
  const unsigned changes = sequence_byte(s) % 4, keep = sequence_byte(s) % 4 == 0;
  size_t in, out, k;
  unsigned c;
  if (!memory) return;
  in = sequence_tensors(s, model, 1, s->in, memory);
  out = sequence_tensors(s, model, 0, s->out, memory + kSequenceMemory);
  for (k = 0; k < kSequenceTensors; ++k) memory[k * 8] = (unsigned char)(sequence_byte(s) % 16);
  for (c = 0; c < changes; ++c) {
    const unsigned which = sequence_byte(s);
    if (which % 8 == 0)
      in = (size_t)sequence_number(s);
    else if (which % 8 == 1)
      out = (size_t)sequence_number(s);
    else if (which % 2 == 0)
      sequence_change(s, &s->in[which / 8 % kSequenceTensors], memory);
    else
      sequence_change(s, &s->out[which / 8 % kSequenceTensors], memory + kSequenceMemory);
  }
  {
    const unsigned null = sequence_byte(s);
    const tandem_tensor* inputs = null % 32 == 7 ? NULL : s->in;
    tandem_tensor* outputs = keep || null % 32 == 8 ? NULL : s->out;
    sequence_check(s, tandem_run(model, inputs, in, outputs, keep ? 0 : out));
  }
  free(memory);
}

static void sequence_ask(call_sequence* s, tandem_model* model) {
  const unsigned what = sequence_byte(s);
  const uint64_t at = sequence_number(s);
  size_t a = 0, b = 0;
  tandem_tensor t;
  memset(&t, 0, sizeof t);
  switch (what % 6) {
    case 0:
      sequence_check(s, tandem_count(model, what & 64 ? NULL : &a, what & 128 ? NULL : &b));
      break;
    case 1:
      sequence_check(s, tandem_input(model, (size_t)at, what & 64 ? NULL : &t));
      break;
    case 2:
      sequence_check(s, tandem_output(model, (size_t)at, what & 64 ? NULL : &t));
      break;
    case 3:
      sequence_check(s, tandem_find_input(model, sequence_name((unsigned)at), &a));
      break;
    case 4:
      sequence_check(s,
                     tandem_find_output(model, sequence_name((unsigned)at), what & 64 ? NULL : &a));
      break;
    default:
      if (sequence_check(s, tandem_result(model, (size_t)at, what & 64 ? NULL : &t)) == TANDEM_OK)
        sequence_touch(&t);
      break;
  }
}

static void sequence_load(call_sequence* s, tandem_model** model) {
  static const char* const paths[] = {"", "/", "no such file", "net.onnx", "x/..", NULL};
  const unsigned how = sequence_byte(s);
  tandem_load_options options;
  memset(&options, 0, sizeof options);
  options.struct_bytes = how & 8 ? sizeof options : (size_t)sequence_number(s);
  options.device = how & 16 ? "cpu" : how & 32 ? "no device" : NULL;
  options.weights = how & 64 ? "no weights" : NULL;
  if (how % 8 < 5)
    sequence_check(s, s->load(model));
  else if (how % 8 == 5)
    sequence_check(s, tandem_load(paths[how / 8 % 6], &options, model));
  else if (how % 8 == 6)
    sequence_check(s, tandem_load(paths[how / 8 % 6], NULL, how & 128 ? NULL : model));
  else
    sequence_check(s, tandem_load_memory(how & 128 ? NULL : s->bytes, s->left, &options, model));
}

/* How many calls succeeded. */
static long run_call_sequence(const unsigned char* bytes, size_t size,
                              tandem_status (*load)(tandem_model** model)) {
  call_sequence s;
  int k, calls;
  memset(&s, 0, sizeof s);
  s.bytes = bytes;
  s.left = size;
  s.load = load;
  s.models[1] = (tandem_model*)&s;
  for (calls = 0; s.left > 0 && calls < kSequenceCalls; ++calls) {
    const unsigned what = sequence_byte(&s);
    tandem_model** model = &s.models[what / 8 % kSequenceModels];
    tandem_model* before = *model;
    switch (what % 8) {
      case 0:
        sequence_load(&s, model);
        if (before && before != (tandem_model*)&s) tandem_free(before); /* else it would be lost */
        break;
      case 1:
        sequence_check(&s, tandem_free(*model)); /* it is kept, and used afterwards */
        break;
      case 2:
      case 3:
        sequence_ask(&s, *model);
        break;
      default:
        sequence_run(&s, *model);
        break;
    }
  }
  for (k = 0; k < kSequenceModels; ++k) tandem_free(s.models[k]);
  return s.succeeded;
}

#endif
