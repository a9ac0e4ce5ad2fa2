/* SPDX-License-Identifier: Apache-2.0 */
/* Models from C: load one, ask what it takes and gives, run it, free it. C99 without dependencies,
 * also C++. Two libraries implement this header: libtandem loads every model that `tandem predict`
 * does, and libtandem-mini (`tandem compile MODEL --target mini`) is one model as C without malloc.
 *
 * No call throws or ends the program. One that fails gives another status than TANDEM_OK and leaves
 * the reason as text in tandem_last_error(); what it would have written to is then unchanged, where
 * nothing else is said. A model that was freed, or never was one, is TANDEM_ERROR_HANDLE. A pointer
 * to less memory than is said cannot be detected.
 *
 * Threads: all functions may be called from any number of threads, also with the same model; what
 * an implementation cannot do side by side waits. A model may be freed while it runs elsewhere. */
#ifndef TDM_TANDEM_C_H
#define TDM_TANDEM_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TANDEM_C_API __attribute__((visibility("default")))
#else
#define TANDEM_C_API
#endif

/* Grows when functions or fields are added; none changes or goes. */
#define TANDEM_C_VERSION 1
#define TANDEM_MAX_RANK 8

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t tandem_status;
enum {
  TANDEM_OK = 0,
  TANDEM_ERROR_ARGUMENT = 1, /* a pointer, count, number or name that is not possible */
  TANDEM_ERROR_HANDLE = 2,   /* not a loaded model */
  TANDEM_ERROR_DTYPE = 3,    /* another dtype than the model's */
  TANDEM_ERROR_SHAPE = 4,    /* sizes that the model does not take, or bytes that do not fit them */
  TANDEM_ERROR_TOO_SMALL = 5, /* the buffer of an output, whose rank and sizes are then set */
  TANDEM_ERROR_INDEX = 6,  /* an index in an input is out of range; buffers may have been written */
  TANDEM_ERROR_IO = 7,     /* a file cannot be read */
  TANDEM_ERROR_FORMAT = 8, /* a file is broken or not a model */
  TANDEM_ERROR_UNSUPPORTED = 9, /* the model or this library cannot do that */
  TANDEM_ERROR_MEMORY = 10,     /* there is no memory for it */
  TANDEM_ERROR_INTERNAL = 11    /* a fault of the library */
};

typedef int32_t tandem_dtype;
enum {
  TANDEM_FLOAT64 = 1,
  TANDEM_FLOAT32 = 2,
  TANDEM_FLOAT16 = 3,
  TANDEM_BFLOAT16 = 4,
  TANDEM_INT64 = 5,
  TANDEM_INT32 = 6,
  TANDEM_INT16 = 7,
  TANDEM_INT8 = 8,
  TANDEM_UINT8 = 9,
  TANDEM_BOOL = 10 /* a byte, 0 or 1 */
};

/* A loaded model. The value is not an address: it is never dereferenced, and none is given out
 * twice. */
typedef struct tandem_model tandem_model;

/* What a model takes or gives, and the memory for it. */
typedef struct tandem_tensor {
  const char* name;               /* NULL: by its place among the inputs or outputs */
  void* data;                     /* row-major, aligned to an element; inputs are only read */
  size_t bytes;                   /* of data */
  tandem_dtype dtype;             /* of a buffer for an output also 0 */
  int32_t rank;                   /* -1: not known before the model has run */
  int64_t sizes[TANDEM_MAX_RANK]; /* -1: open */
} tandem_tensor;

/* NULL in the place of the options, and of each field, means what stands in brackets. */
typedef struct tandem_load_options {
  size_t struct_bytes;   /* sizeof(tandem_load_options) */
  const char* weights;   /* a file, for a model by name [initial ones]; of a run "best" [last] */
  const char* signature; /* of a SavedModel or a .tflite file ["serving_default", or the first] */
  const char* device;    /* "cpu", "cuda", "cuda:1", "opencl", "auto" ["cpu"] */
} tandem_load_options;

/* ---- the library */

/* "0.1.0"; of libtandem-mini "0.1.0 (mini: net)". */
TANDEM_C_API const char* tandem_version(void);
/* Why the last call of this thread that failed did; "" before one has. Valid until the next one
 * fails. */
TANDEM_C_API const char* tandem_last_error(void);
/* "ok", "shape" ...; "unknown" for other numbers. */
TANDEM_C_API const char* tandem_status_name(tandem_status status);
/* "float32" ... and the bytes of an element; "unknown" and 0 for other numbers. */
TANDEM_C_API const char* tandem_dtype_name(tandem_dtype dtype);
TANDEM_C_API size_t tandem_dtype_bytes(tandem_dtype dtype);
/* Threads that one call may use, for the whole process: 1 to 1024, 0: as many as there are
 * processors. libtandem-mini uses the calling thread alone. */
TANDEM_C_API tandem_status tandem_set_threads(int32_t count);
TANDEM_C_API tandem_status tandem_get_threads(int32_t* count);

/* ---- models */

/* A run's folder, an .onnx or .tflite file, a SavedModel, a frozen graph (.pb), a Keras file,
 * TensorFlow.js's model.json, a folder of Hugging Face, or a model's name. Of libtandem-mini: NULL,
 * "" or the net's name. *model is NULL after an error. */
TANDEM_C_API tandem_status tandem_load(const char* path, const tandem_load_options* options,
                                       tandem_model** model);
/* The bytes of an .onnx, .tflite or Keras file, which may go afterwards. */
TANDEM_C_API tandem_status tandem_load_memory(const void* data, size_t bytes,
                                              const tandem_load_options* options,
                                              tandem_model** model);
/* NULL does nothing. What runs elsewhere with this model runs to its end. */
TANDEM_C_API tandem_status tandem_free(tandem_model* model);

TANDEM_C_API tandem_status tandem_count(tandem_model* model, size_t* inputs, size_t* outputs);
/* Input or output `at`; data is NULL, bytes 0. With data, bytes and its open sizes set it is ready
 * for tandem_run(). The name lives as long as the model. */
TANDEM_C_API tandem_status tandem_input(tandem_model* model, size_t at, tandem_tensor* tensor);
TANDEM_C_API tandem_status tandem_output(tandem_model* model, size_t at, tandem_tensor* tensor);
/* The place of the input or output with that name. */
TANDEM_C_API tandem_status tandem_find_input(tandem_model* model, const char* name, size_t* at);
TANDEM_C_API tandem_status tandem_find_output(tandem_model* model, const char* name, size_t* at);

/* ---- running */

/* Runs the model on all its inputs: each with the model's dtype and sizes, and bytes that are
 * exactly those of the sizes. `outputs` is a buffer for each output: data and bytes are read (and
 * dtype where it is not 0); dtype, rank and sizes are set, data is filled from its beginning.
 * Buffers must not overlap each other or an input. With outputs NULL and output_count 0 the library
 * keeps the results for tandem_result(). */
TANDEM_C_API tandem_status tandem_run(tandem_model* model, const tandem_tensor* inputs,
                                      size_t input_count, tandem_tensor* outputs,
                                      size_t output_count);
/* Output `at` of this thread's last call of tandem_run() that kept its results. The memory is the
 * library's, may only be read, and is valid until the next such call for this model or
 * tandem_free(): programs that run one model from several threads give buffers instead. */
TANDEM_C_API tandem_status tandem_result(tandem_model* model, size_t at, tandem_tensor* tensor);

#ifdef __cplusplus
}
#endif
#endif
