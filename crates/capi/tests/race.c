/* A data race, planted: a thread writes the message that the library reads. `cargo xtask ci full capi` runs this program under
 * ThreadSanitizer, which must report the race: otherwise nothing is said by the programs that it has nothing to report of. */
#include <hypergrove.h>

#include <pthread.h>
#include <stdio.h>

static uint8_t message[64];

static void *writes(void *argument)
{
    for (unsigned i = 0; i < sizeof message; i++)
        message[i] = (uint8_t)i;
    return argument;
}

int main(void)
{
    hg_engine *engine;
    hg_engine_options options = HG_ENGINE_OPTIONS_INIT;
    const char *const devices[] = {"cpu:0"};
    options.devices = devices;
    options.device_count = 1;
    options.threads = 1;
    uint8_t sum[32];
    pthread_t thread;
    if (hg_engine_new(&options, &engine) != HG_OK || pthread_create(&thread, NULL, writes, NULL) != 0)
        return 0;
    /* Nothing orders this call and the thread. */
    if (hg_sha256(engine, message, sizeof message, sum) != HG_OK)
        fprintf(stderr, "%s\n", hg_error_text());
    pthread_join(thread, NULL);
    hg_engine_free(engine);
    return 0;
}
