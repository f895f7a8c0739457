/* A node's batch check. The node has records as they came from the network: a public key, a message, a signature, and at the end bytes of its
 * own that tell it which record this is. The records are verified where they lie, in one call, with a verdict for each.
 *
 * node [RECORDS [SECONDS]]: with SECONDS, the call is repeated for so long, and the rate is printed. */
#define _POSIX_C_SOURCE 200112L /* clock_gettime */
#include <hypergrove.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PUBLIC_KEY = 32, PRIVATE_KEY = 64, MESSAGE = 32, SIGNATURE = 17088, KEYS = 8 };

struct record {
    uint8_t public_key[PUBLIC_KEY];
    uint8_t message[MESSAGE];
    uint8_t signature[SIGNATURE];
    uint64_t id; /* the node's own: the library does not read it */
};

static void check(hg_status status, const char *what)
{
    if (status != HG_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, hg_status_text(status), hg_error_text());
        exit(2);
    }
}

static void *room(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        fprintf(stderr, "%zu bytes: out of memory\n", bytes);
        exit(2);
    }
    return memory;
}

/* One member of all records. */
static hg_column member(const void *first, size_t width, size_t records)
{
    hg_column column = {first, (records - 1) * sizeof(struct record) + width, width, sizeof(struct record), NULL};
    return column;
}

/* Records signed by several keys, as the network would bring them. */
static void receive(const hg_engine *engine, struct record *records, size_t count)
{
    uint8_t private_keys[KEYS * PRIVATE_KEY], public_keys[KEYS * PUBLIC_KEY];
    check(hg_keygen_rows(engine, HG_SLH_DSA_SHA2_128F, KEYS, NULL, 0, private_keys, sizeof private_keys, public_keys,
                         sizeof public_keys),
          "keys");
    hg_private_key *keys[KEYS];
    for (size_t i = 0; i < KEYS; i++)
        check(hg_private_key_from_raw(HG_SLH_DSA_SHA2_128F, private_keys + i * PRIVATE_KEY, PRIVATE_KEY, &keys[i]), "key");
    hg_wipe(private_keys, sizeof private_keys);

    uint32_t *key_index = room(count * sizeof *key_index);
    for (size_t i = 0; i < count; i++) {
        key_index[i] = (uint32_t)(i % KEYS);
        records[i].id = 1000 + i;
        memset(records[i].message, 0, MESSAGE);
        memcpy(records[i].message, &records[i].id, sizeof records[i].id);
        memcpy(records[i].public_key, public_keys + key_index[i] * PUBLIC_KEY, PUBLIC_KEY);
    }
    uint8_t *signatures = room(count * SIGNATURE), *statuses = room(count);
    hg_sign_batch batch = HG_SIGN_BATCH_INIT;
    batch.rows = count;
    batch.table = (const hg_private_key *const *)keys;
    batch.table_length = KEYS;
    batch.key_index = key_index;
    batch.messages = member(records[0].message, MESSAGE, count);
    check(hg_sign_rows(engine, &batch, NULL, signatures, count * SIGNATURE, statuses), "signatures");
    for (size_t i = 0; i < count; i++) {
        if (statuses[i] != HG_ROW_SIGNED) {
            fprintf(stderr, "record %" PRIu64 ": %s\n", records[i].id, hg_row_status_text(statuses[i]));
            exit(2);
        }
        memcpy(records[i].signature, signatures + i * SIGNATURE, SIGNATURE);
    }
    for (size_t i = 0; i < KEYS; i++)
        hg_private_key_free(keys[i]);
    free(key_index);
    free(signatures);
    free(statuses);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    const size_t count = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 40;
    const double seconds = argc > 2 ? strtod(argv[2], NULL) : 0;
    if (count < 4 || count > SIZE_MAX / sizeof(struct record)) {
        fprintf(stderr, "node [RECORDS [SECONDS]]: 4 records or more\n");
        return 2;
    }
    /* All devices where that is faster; the CPU alone where there is no GPU. */
    hg_engine *engine;
    check(hg_engine_new(NULL, &engine), "engine");
    struct record *records = room(count * sizeof *records);
    uint8_t *statuses = room(count);
    receive(engine, records, count);

    /* Two of them do not hold. */
    records[1].signature[SIGNATURE - 1] ^= 1;
    records[count - 1].message[0] ^= 1;

    hg_verify_batch batch = HG_VERIFY_BATCH_INIT;
    batch.rows = count;
    batch.set = HG_SLH_DSA_SHA2_128F;
    batch.keys = member(records[0].public_key, PUBLIC_KEY, count);
    batch.messages = member(records[0].message, MESSAGE, count);
    batch.signatures = member(records[0].signature, SIGNATURE, count);
    check(hg_verify_rows(engine, &batch, NULL, statuses), "verification");

    size_t valid = 0;
    for (size_t i = 0; i < count; i++) {
        if (statuses[i] == HG_ROW_VALID)
            valid++;
        else
            printf("record %" PRIu64 ": %s\n", records[i].id, hg_row_status_text(statuses[i]));
    }
    printf("%zu of %zu records are valid\n", valid, count);
    const int right = valid == count - 2 && statuses[1] == HG_ROW_INVALID && statuses[count - 1] == HG_ROW_INVALID;

    if (seconds > 0) {
        size_t calls = 0;
        const double start = now();
        double end;
        do {
            check(hg_verify_rows(engine, &batch, NULL, statuses), "verification");
            calls++;
        } while ((end = now()) - start < seconds);
        printf("%.0f verifications/s\n", (double)(calls * count) / (end - start));
    }
    free(statuses);
    free(records);
    hg_engine_free(engine);
    return right ? 0 : 1;
}
