/* SPDX-License-Identifier: Apache-2.0 */
/* Four threads run one model, also one that is freed meanwhile. All results must have the bits of the
 * first. C99 with POSIX threads. Usage: threads [MODEL] */
#include <pthread.h>
#include <stdio.h>

#include "net_call.h"

enum { kThreads = 4, kRuns = 200 };

typedef struct thread_work {
  tandem_model *model;
  const net_call *first;
  int failures, freed;
} thread_work;

static void *run_often(void *argument) {
  thread_work *w = (thread_work *)argument;
  int i;
  for (i = 0; i < kRuns; ++i) {
    net_call c;
    const tandem_status status = run_call(w->model, right_call(&c));
    if (status == TANDEM_ERROR_HANDLE) {
      w->freed = 1;
      if (!strstr(tandem_last_error(), "freed")) ++w->failures;
    } else if (status != TANDEM_OK || memcmp(c.y, w->first->y, sizeof c.y) != 0 ||
               memcmp(c.top, w->first->top, sizeof c.top) != 0) {
      ++w->failures;
    }
    /* An error of this thread does not change that of another. */
    c.in_count = 1;
    if (run_call(w->model, &c) == TANDEM_OK || !*tandem_last_error()) ++w->failures;
  }
  return NULL;
}

static int run_threads(tandem_model *model, const net_call *first, int free_it) {
  pthread_t threads[kThreads];
  thread_work work[kThreads];
  int k, failures = 0;
  for (k = 0; k < kThreads; ++k) {
    work[k].model = model;
    work[k].first = first;
    work[k].failures = work[k].freed = 0;
    if (pthread_create(&threads[k], NULL, run_often, &work[k]) != 0) return 1;
  }
  if (free_it && tandem_free(model) != TANDEM_OK) ++failures;
  for (k = 0; k < kThreads; ++k) {
    pthread_join(threads[k], NULL);
    failures += work[k].failures;
    if (work[k].freed && !free_it) ++failures;
  }
  return failures;
}

static int threads_test(const char *path) {
  tandem_model *model = NULL;
  net_call first;
  int failures = 0;
  if (tandem_load(path, NULL, &model) != TANDEM_OK) {
    printf("load: %s\n", tandem_last_error());
    return 1;
  }
  if (run_call(model, right_call(&first)) != TANDEM_OK) return 1;
  failures += run_threads(model, &first, 1);
  /* Nothing has prepared this one. */
  if (tandem_load(path, NULL, &model) != TANDEM_OK) return 1;
  failures += run_threads(model, &first, 0);
  failures += tandem_free(model) != TANDEM_OK;
  if (failures) printf("%d failures in threads: %s\n", failures, tandem_last_error());
  return failures;
}

#ifndef TANDEM_IN_PROCESS
int main(int argc, char **argv) { return threads_test(argc > 1 ? argv[1] : NULL) ? 1 : 0; }
#endif
