/* The text of measured choices, which ranks send and files keep: what was read is written the same
 * way. */
#include "device/device.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yoke_choices *choices = NULL;
    char *own = fuzz_copy(data, size), *written = NULL;
    if (yoke_choices_create(&choices) != YOKE_OK) abort();
    if (yoke_choices_read(choices, own) == YOKE_OK &&
        yoke_choices_write(choices, &written) == YOKE_OK)
        free(written);
    yoke_choices_destroy(choices);
    free(own);
    return 0;
}
