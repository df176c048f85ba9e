/* The program of the README: one Gated DeltaNet head stores a value under a key, overwrites it, and
 * is asked for it. */
#define LA_IMPLEMENTATION
#include "linear_attention.h"
#include <stdio.h>
int main(void) {
    float k[] = {1, 0, 0, 1, 1, 0}, v[] = {3, 1, 7, 7, 5, 2}; /* [T = 3][H = 1][2] */
    float out[6], work[4096];
    la_layer layer; la_call call;
    la_layer_init(&layer, LA_GATED_DELTANET, 1, 2, 2);
    la_call_init(&call, &layer, 1, 3);
    call.q = call.k = la_bthd(k, 3, 1, 2), call.v = la_bthd(v, 3, 1, 2);
    call.out = la_bthd_out(out, 3, 1, 2);
    call.workspace = work, call.workspace_size = sizeof work;
    puts(la_status_text(la_forward(&layer, &call)));
    return printf("%g %g\n", (double)out[4], (double)out[5]) < 0; /* 5 2: 3 1 was overwritten */
}
