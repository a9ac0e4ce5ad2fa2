/* SPDX-License-Identifier: Apache-2.0 */
/* libtandem-mini: tandem_c.h for the one net of mini_net.h. No malloc and no other library; memory is
 * static data. Needs the builtins of GCC or Clang for locks.
 *
 * TANDEM_MINI_MODELS: how many models may be loaded at once, 1 unless it is defined. Each has an arena
 *   of its own, in which one call runs at a time.
 * TANDEM_MINI_NO_RESULTS: without the memory for results of calls that give no buffers.
 * TANDEM_MINI_THREAD_LOCAL: how a variable of each thread is declared; empty where there are none. */
#include "tandem_c.h"

#include "mini_net.h"
#include "tandem_checks.h"

#ifndef TANDEM_MINI_MODELS
#define TANDEM_MINI_MODELS 1
#endif
#if defined(__unix__) || defined(__APPLE__)
#ifndef TANDEM_MINI_THREAD_LOCAL
#define TANDEM_MINI_THREAD_LOCAL __thread
#endif
extern int sched_yield(void);
#define MINI_PAUSE() (void)sched_yield()
#else
#ifndef TANDEM_MINI_THREAD_LOCAL
#define TANDEM_MINI_THREAD_LOCAL
#endif
#define MINI_PAUSE() (void)0
#endif
#ifdef TANDEM_MINI_NO_RESULTS
#define MINI_KEEPS_RESULTS 0
#define MINI_KEPT_WORDS 1
#else
#define MINI_KEEPS_RESULTS 1
#define MINI_KEPT_WORDS MINI_RESULT_WORDS
#endif

typedef struct mini_slot {
  uint64_t arena[MINI_ARENA_WORDS];
  uint64_t results[MINI_KEPT_WORDS];
  tandem_model *model; /* NULL: free */
  const void *kept_by; /* the thread whose results these are */
  char running;        /* a lock */
} mini_slot;

static const size_t mini_input_count = MINI_INPUTS, mini_output_count = MINI_OUTPUTS;
static mini_slot mini_slots[TANDEM_MINI_MODELS];
static uintptr_t mini_loads;
static char mini_table; /* the lock of `model`, `kept_by` and the number of loads */
static TANDEM_MINI_THREAD_LOCAL tandem_text mini_error;

static void mini_lock(char *lock) {
  while (__atomic_test_and_set(lock, __ATOMIC_ACQUIRE)) MINI_PAUSE();
}
static void mini_unlock(char *lock) { __atomic_clear(lock, __ATOMIC_RELEASE); }

__attribute__((cold, noinline)) static tandem_status mini_fail(tandem_status status, const char *text) {
  mini_error.used = 0;
  tandem_say(&mini_error, text);
  return status;
}
static tandem_text *mini_why(tandem_text *why) {
  why->used = 0;
  why->text[0] = 0;
  return why;
}
static tandem_status mini_done(tandem_status status, const tandem_text *why) {
  return status == TANDEM_OK ? status : mini_fail(status, why->text);
}

/* The slot of a model; NULL, and an error, where it is not loaded. */
static mini_slot *mini_find(const tandem_model *model) {
  mini_slot *found = 0;
  size_t k;
  mini_lock(&mini_table);
  for (k = 0; model && k < TANDEM_MINI_MODELS; ++k)
    if (mini_slots[k].model == model) found = &mini_slots[k];
  mini_unlock(&mini_table);
  if (!found)
    mini_fail(TANDEM_ERROR_HANDLE, model ? "the model is not loaded: it was freed, or never was one"
                                         : "the model is NULL");
  return found;
}

const char *tandem_version(void) { return MINI_VERSION " (mini: " MINI_NAME ")"; }
const char *tandem_last_error(void) { return mini_error.text; }
const char *tandem_status_name(tandem_status status) { return tandem_name_of_status(status); }
const char *tandem_dtype_name(tandem_dtype dtype) { return tandem_name_of_dtype(dtype); }
size_t tandem_dtype_bytes(tandem_dtype dtype) { return tandem_bytes_of_dtype(dtype); }

tandem_status tandem_set_threads(int32_t count) {
  return count < 0 || count > 1024
             ? mini_fail(TANDEM_ERROR_ARGUMENT, "the number of threads is from 1 to 1024, or 0")
             : TANDEM_OK;
}

tandem_status tandem_get_threads(int32_t *count) {
  if (!count) return mini_fail(TANDEM_ERROR_ARGUMENT, "count is NULL");
  *count = 1;
  return TANDEM_OK;
}

tandem_status tandem_load(const char *path, const tandem_load_options *options, tandem_model **model) {
  tandem_text why;
  size_t k;
  tandem_status status = tandem_check_options(options, mini_why(&why));
  if (!model) return mini_fail(TANDEM_ERROR_ARGUMENT, "model is NULL");
  *model = 0;
  if (status != TANDEM_OK) return mini_fail(status, why.text);
  if (path && *path && !tandem_same_name(path, MINI_NAME))
    return mini_fail(TANDEM_ERROR_UNSUPPORTED,
                     "this library holds one net: load NULL, \"\" or \"" MINI_NAME "\"");
  if (options && (options->weights || options->signature ||
                  (options->device && !tandem_same_name(options->device, "cpu"))))
    return mini_fail(TANDEM_ERROR_UNSUPPORTED,
                     "this library holds one net with its weights for the processor: options other than "
                     "the device \"cpu\" do not apply");
  mini_lock(&mini_table);
  for (k = 0; k < TANDEM_MINI_MODELS && !*model; ++k)
    if (!mini_slots[k].model) {
      mini_slots[k].kept_by = 0;
      *model = mini_slots[k].model = (tandem_model *)(2 * ++mini_loads - 1);
    }
  mini_unlock(&mini_table);
  if (*model) return TANDEM_OK;
  return mini_fail(TANDEM_ERROR_MEMORY,
                   "all models of this library are loaded: free one, or build it with a larger "
                   "TANDEM_MINI_MODELS");
}

tandem_status tandem_load_memory(const void *data, size_t bytes, const tandem_load_options *options,
                                 tandem_model **model) {
  (void)data;
  (void)bytes;
  (void)options;
  if (!model) return mini_fail(TANDEM_ERROR_ARGUMENT, "model is NULL");
  *model = 0;
  return mini_fail(TANDEM_ERROR_UNSUPPORTED,
                   "this library holds one net and reads no other: use tandem_load()");
}

tandem_status tandem_free(tandem_model *model) {
  mini_slot *slot = model ? mini_find(model) : 0;
  if (!model) return TANDEM_OK;
  if (!slot) return TANDEM_ERROR_HANDLE;
  mini_lock(&mini_table);
  if (slot->model == model) slot->model = 0;
  mini_unlock(&mini_table);
  return TANDEM_OK;
}

tandem_status tandem_count(tandem_model *model, size_t *inputs, size_t *outputs) {
  if (!mini_find(model)) return TANDEM_ERROR_HANDLE;
  if (!inputs || !outputs)
    return mini_fail(TANDEM_ERROR_ARGUMENT, inputs ? "outputs is NULL" : "inputs is NULL");
  *inputs = MINI_INPUTS;
  *outputs = MINI_OUTPUTS;
  return TANDEM_OK;
}

static tandem_status mini_port(tandem_model *model, const tandem_tensor *ports, size_t count,
                               const char *kind, size_t at, tandem_tensor *tensor) {
  tandem_text why;
  tandem_status status;
  if (!mini_find(model)) return TANDEM_ERROR_HANDLE;
  if (!tensor) return mini_fail(TANDEM_ERROR_ARGUMENT, "tensor is NULL");
  status = tandem_check_place(at, count, kind, mini_why(&why));
  if (status == TANDEM_OK) *tensor = ports[at];
  return mini_done(status, &why);
}

tandem_status tandem_input(tandem_model *model, size_t at, tandem_tensor *tensor) {
  return mini_port(model, mini_inputs, MINI_INPUTS, "input", at, tensor);
}

tandem_status tandem_output(tandem_model *model, size_t at, tandem_tensor *tensor) {
  return mini_port(model, mini_outputs, MINI_OUTPUTS, "output", at, tensor);
}

static tandem_status mini_find_port(tandem_model *model, const tandem_tensor *ports, size_t count,
                                    const char *kind, const char *name, size_t *at) {
  tandem_text why;
  if (!mini_find(model)) return TANDEM_ERROR_HANDLE;
  if (!name || !at) return mini_fail(TANDEM_ERROR_ARGUMENT, name ? "at is NULL" : "name is NULL");
  return mini_done(tandem_find_port(ports, count, kind, name, at, mini_why(&why)), &why);
}

tandem_status tandem_find_input(tandem_model *model, const char *name, size_t *at) {
  return mini_find_port(model, mini_inputs, MINI_INPUTS, "input", name, at);
}

tandem_status tandem_find_output(tandem_model *model, const char *name, size_t *at) {
  return mini_find_port(model, mini_outputs, MINI_OUTPUTS, "output", name, at);
}

/* A thread, by the address of what is its own. */
static const void *mini_thread(void) { return &mini_error; }

static tandem_status mini_run(mini_slot *slot, tandem_model *model, const void *const *in,
                              void *const *out, int keep) {
  void *kept[MINI_OUTPUTS + 1];
  tandem_status status = TANDEM_OK;
  size_t k;
  for (k = 0; k < mini_output_count; ++k)
    kept[k] = slot->results + (MINI_KEEPS_RESULTS ? mini_result_at[k] : 0);
  mini_lock(&slot->running);
  mini_lock(&mini_table);
  if (slot->model != model)
    status = mini_fail(TANDEM_ERROR_HANDLE, "the model was freed by another thread");
  else if (keep)
    slot->kept_by = 0;
  mini_unlock(&mini_table);
  if (status == TANDEM_OK && mini_call(slot->arena, in, keep ? kept : out))
    status = mini_fail(TANDEM_ERROR_INDEX, "an index in an input is out of range");
  mini_lock(&mini_table);
  if (status == TANDEM_OK && keep && slot->model == model) slot->kept_by = mini_thread();
  mini_unlock(&mini_table);
  mini_unlock(&slot->running);
  return status;
}

tandem_status tandem_run(tandem_model *model, const tandem_tensor *inputs, size_t input_count,
                         tandem_tensor *outputs, size_t output_count) {
  const int keep = !outputs && output_count == 0;
  size_t input_place[MINI_INPUTS + 1], output_place[MINI_OUTPUTS + 1], k;
  const void *in[MINI_INPUTS + 1];
  void *out[MINI_OUTPUTS + 1];
  tandem_text why;
  tandem_status status;
  mini_slot *slot = mini_find(model);
  if (!slot) return TANDEM_ERROR_HANDLE;
  status = tandem_check_run(mini_inputs, MINI_INPUTS, mini_outputs, MINI_OUTPUTS, inputs, input_count,
                            outputs, output_count, input_place, output_place, mini_why(&why));
  for (k = 0; status == TANDEM_OK && !keep && k < mini_output_count; ++k)
    status = tandem_check_space(&mini_outputs[k], &outputs[output_place[k]], &why);
  if (status != TANDEM_OK) return mini_fail(status, why.text);
  if (keep && !MINI_KEEPS_RESULTS)
    return mini_fail(TANDEM_ERROR_UNSUPPORTED,
                     "this library keeps no results (TANDEM_MINI_NO_RESULTS): give buffers");
  for (k = 0; k < mini_input_count; ++k) in[k] = inputs[input_place[k]].data;
  for (k = 0; k < mini_output_count; ++k) out[k] = keep ? 0 : outputs[output_place[k]].data;
  status = mini_run(slot, model, in, out, keep);
  for (k = 0; status == TANDEM_OK && !keep && k < mini_output_count; ++k) {
    tandem_tensor *to = &outputs[output_place[k]];
    int32_t d;
    to->dtype = mini_outputs[k].dtype;
    to->rank = mini_outputs[k].rank;
    for (d = 0; d < to->rank; ++d) to->sizes[d] = mini_outputs[k].sizes[d];
  }
  return status;
}

tandem_status tandem_result(tandem_model *model, size_t at, tandem_tensor *tensor) {
  tandem_text why;
  uint64_t bytes = 0;
  tandem_status status;
  int mine;
  mini_slot *slot = mini_find(model);
  if (!slot) return TANDEM_ERROR_HANDLE;
  if (!tensor) return mini_fail(TANDEM_ERROR_ARGUMENT, "tensor is NULL");
  status = tandem_check_place(at, MINI_OUTPUTS, "output", mini_why(&why));
  if (status != TANDEM_OK) return mini_fail(status, why.text);
  mini_lock(&mini_table);
  mine = slot->model == model && slot->kept_by == mini_thread();
  mini_unlock(&mini_table);
  if (!mine)
    return mini_fail(TANDEM_ERROR_ARGUMENT,
                     "there are no results: no call of tandem_run() without buffers was made in this thread");
  (void)tandem_bytes_of(&mini_outputs[at], &bytes);
  *tensor = mini_outputs[at];
  tensor->data = slot->results + (MINI_KEEPS_RESULTS ? mini_result_at[at] : 0);
  tensor->bytes = (size_t)bytes;
  return TANDEM_OK;
}
