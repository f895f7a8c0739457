/* A server that signs in an event loop: clients ask one after the other, their jobs share batches, and the loop never waits for a signature.
 * The clients here are a counter; a real server has their sockets in the same poll.
 *
 * server [SECONDS]: how long a client waits for its signature at most; 10 unless it is given. */
#define _POSIX_C_SOURCE 200809L /* pipe, poll */
#include <hypergrove.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 50, SIGNATURE = 17088 };

/* What a client asked, and what it gets. */
struct request {
    int pipe; /* the loop's */
    char message[32];
    hg_status status;
    uint8_t signature[SIGNATURE];
};

static void check(hg_status status, const char *what)
{
    if (status != HG_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, hg_status_text(status), hg_error_text());
        exit(2);
    }
}

/* On a thread of the engine: keeps the result and wakes the loop, by the address of the request. */
static void done(void *user, hg_status status, const uint8_t *result, size_t length)
{
    struct request *request = user;
    request->status = status;
    if (status == HG_OK)
        memcpy(request->signature, result, length);
    if (write(request->pipe, &request, sizeof request) != (ssize_t)sizeof request)
        abort();
}

int main(int argc, char **argv)
{
    const unsigned long seconds = argc > 1 ? strtoul(argv[1], NULL, 10) : 10;
    if (seconds < 1 || seconds > 1000000) {
        fprintf(stderr, "server [SECONDS]: 1 to 1000000 seconds\n");
        return 2;
    }
    int ends[2];
    hg_engine *engine;
    hg_private_key *plain, *key;
    hg_public_key *public_key;
    struct request *requests = calloc(CLIENTS, sizeof *requests);
    if (requests == NULL || pipe(ends) != 0)
        return 2;
    check(hg_engine_new(NULL, &engine), "engine");
    check(hg_private_key_generate(engine, HG_SLH_DSA_SHA2_128F, &plain), "key");
    /* One key signs for all clients: the top layers of its hypertree are computed once, as many as fit. */
    hg_cache_options cache = HG_CACHE_OPTIONS_INIT;
    cache.memory = 64 * 1024;
    check(hg_private_key_cache(engine, plain, &cache, &key), "cached layers");
    hg_private_key_free(plain);
    printf("%u layers are cached\n", (unsigned)hg_private_key_cached_layers(key));
    check(hg_public_key_of(key, &public_key), "public key");

    int asked = 0, answered = 0, valid = 0;
    while (answered < CLIENTS) {
        /* A client asks. With a full queue the loop goes on with its answers, and this client waits. */
        if (asked < CLIENTS) {
            struct request *request = &requests[asked];
            request->pipe = ends[1];
            snprintf(request->message, sizeof request->message, "request %d", asked);
            hg_status status = hg_sign_queued(engine, key, NULL, (const uint8_t *)request->message, strlen(request->message), done,
                                              request, (uint32_t)seconds * 1000, NULL);
            if (status == HG_OK)
                asked++;
            else if (status != HG_QUEUE_FULL)
                check(status, "queue");
        }
        struct pollfd wakes = {ends[0], POLLIN, 0};
        while (poll(&wakes, 1, asked < CLIENTS ? 0 : -1) > 0) {
            struct request *request;
            if (read(ends[0], &request, sizeof request) != (ssize_t)sizeof request)
                return 2;
            answered++;
            if (request->status != HG_OK)
                fprintf(stderr, "%s: %s\n", request->message, hg_status_text(request->status));
            valid += request->status == HG_OK
                     && hg_verify(engine, public_key, NULL, (const uint8_t *)request->message, strlen(request->message),
                                  request->signature, SIGNATURE)
                            == HG_OK;
            if (answered == CLIENTS)
                break;
        }
    }
    printf("%d of %d clients have a valid signature\n", valid, CLIENTS);
    check(hg_engine_drain(engine, 1000), "drain");
    hg_engine_free(engine);
    hg_private_key_free(key);
    hg_public_key_free(public_key);
    close(ends[0]);
    close(ends[1]);
    free(requests);
    return valid == CLIENTS ? 0 : 1;
}
