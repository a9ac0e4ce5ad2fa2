/* SPDX-License-Identifier: Apache-2.0 */
/* Many sequences of calls of libtandem-mini, from numbers drawn at random. Usage: sequences [COUNT] */
#include "tandem_c.h"

#include "call_sequence.h"

static tandem_status load_net(tandem_model **model) { return tandem_load(NULL, NULL, model); }

int main(int argc, char **argv) {
  const long count = argc > 1 ? atol(argv[1]) : 1000;
  uint32_t state = 1;
  long i, succeeded = 0;
  for (i = 0; i < count; ++i) {
    unsigned char bytes[256];
    size_t k;
    for (k = 0; k < sizeof bytes; ++k) {
      state = state * 1664525u + 1013904223u;
      bytes[k] = (unsigned char)(state >> 24);
    }
    succeeded += run_call_sequence(bytes, sizeof bytes, load_net);
  }
  printf("%ld sequences, %ld calls succeeded\n", count, succeeded);
  return succeeded > count ? 0 : 1;
}
