/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program in C: runs a small net by name on an empty image. */
#include <stdio.h>
#include <tandem_c.h>

int main(void) {
  static float image[784], scores[10];
  tandem_model *model = NULL;
  tandem_tensor x, y;
  tandem_status status = tandem_load("lenet", NULL, &model);
  if (status == TANDEM_OK) status = tandem_input(model, 0, &x);
  if (status == TANDEM_OK) status = tandem_output(model, 0, &y);
  if (status == TANDEM_OK) {
    x.sizes[0] = 1;
    x.data = image;
    x.bytes = sizeof image;
    y.data = scores;
    y.bytes = sizeof scores;
    status = tandem_run(model, &x, 1, &y, 1);
  }
  if (status == TANDEM_OK)
    printf("Tandem %s: %s of rank %d\n", tandem_version(), y.name, (int)y.rank);
  else
    fprintf(stderr, "%s\n", tandem_last_error());
  tandem_free(model);
  return status;
}
