/* The program of the README: one Gated DeltaNet head stores a value under a key, overwrites it, and
 * is asked for it. */
#define LA_IMPLEMENTATION
#include "linear_attention.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    float k[] = {1, 0, 0, 1, 1, 0}, v[] = {3, 1, 7, 7, 5, 2}, out[6]; /* [T = 3][H = 1][2] */
    la_layer layer; la_call call; la_status status;
    la_layer_init(&layer, LA_GATED_DELTANET, 1, 2, 2);
    la_call_init(&call, &layer, 1, 3);
    call.q = call.k = la_bthd(k, 3, 1, 2), call.v = la_bthd(v, 3, 1, 2);
    call.out = la_bthd_out(out, 3, 1, 2);
    call.workspace = malloc(call.workspace_size = la_workspace_size(&layer, &call));
    status = la_forward(&layer, &call);
    printf("%s: %g %g\n", la_status_text(status), (double)out[4], (double)out[5]);
    free(call.workspace);
    return status != LA_OK; /* success: 5 2, for the delta rule has overwritten 3 1 */
}
