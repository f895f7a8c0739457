/* Bad input of every function: each is a status, never a crash. Then threads that share an engine, and fork. */
#define _POSIX_C_SOURCE 200809L
#include <hypergrove.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SET = HG_SLH_DSA_SHA2_128F, SIGNATURE = 17088, ZK_SIGNATURE = 2340, ROWS = 4 };

static int failures;

/* A status that is expected, with a sentence that has these words. */
static void expect(int line, hg_status got, hg_status wanted, const char *words)
{
    if (got == wanted && (wanted == HG_OK || strstr(hg_error_text(), words) != NULL))
        return;
    fprintf(stderr, "line %d: '%s', expected '%s' about '%s': %s\n", line, hg_status_text(got), hg_status_text(wanted), words,
            hg_error_text());
    failures++;
}

static void expect_true(int line, int is_true, const char *what)
{
    if (!is_true) {
        fprintf(stderr, "line %d: not so: %s\n", line, what);
        failures++;
    }
}

#define OK(call) expect(__LINE__, call, HG_OK, "")
#define BAD(call, words) expect(__LINE__, call, HG_BAD_INPUT, words)
#define IS(status, call, words) expect(__LINE__, call, status, words)
#define TRUE(fact) expect_true(__LINE__, fact, #fact)

static hg_engine *engine;
static hg_private_key *key, *zk_key;
static hg_public_key *public_key, *zk_public_key;
static uint8_t signature[SIGNATURE], zk_signature[ZK_SIGNATURE];
static const uint8_t message[] = "a message";

/* A key of a seed that everybody knows: Valgrind, which follows secrets through the library where that is built for it, has nothing to say of
 * what this program does with the key. */
static hg_private_key *known_key(hg_set set)
{
    uint8_t seed[48], secret[3936], public_bytes[3104];
    hg_private_key *made = NULL;
    memset(seed, 5, sizeof seed);
    OK(hg_keygen_rows(engine, set, 1, seed, hg_seed_size(set), secret, hg_private_key_size(set), public_bytes, hg_public_key_size(set)));
    OK(hg_private_key_from_raw(set, secret, hg_private_key_size(set), &made));
    return made;
}

static void texts(void)
{
    TRUE(strcmp(hg_version(), HG_VERSION) == 0);
    TRUE(strcmp(hg_status_text(HG_OK), "done") == 0 && strcmp(hg_status_text(-1), "unknown status") == 0);
    TRUE(strcmp(hg_row_status_text(HG_ROW_VALID), "the signature is valid") == 0);
    TRUE(strcmp(hg_row_status_text(200), "unknown status") == 0);
    TRUE(strcmp(hg_error_text(), "") == 0);
    hg_wipe(NULL, 10);
    uint8_t secret[3] = {1, 2, 3};
    hg_wipe(secret, 2);
    TRUE(secret[0] == 0 && secret[1] == 0 && secret[2] == 3);
}

static void sets(void)
{
    hg_set set = 7;
    BAD(hg_set_by_name(NULL, &set), "name: NULL");
    TRUE(set == 0);
    BAD(hg_set_by_name("sha2-128f", NULL), "set: NULL");
    BAD(hg_set_by_name("sha2-128g", &set), "sha2-128g");
    BAD(hg_set_by_name("\xff", &set), "UTF-8");
    OK(hg_set_by_name("slh-dsa-sha2-128F", &set));
    TRUE(set == SET);
    OK(hg_set_by_name("zkdilithium", &set));
    TRUE(set == HG_ZKDILITHIUM);
    TRUE(hg_set_name(1) == NULL && strcmp(hg_set_name(SET), "SLH-DSA-SHA2-128f") == 0);
    TRUE(hg_signature_size(SET) == SIGNATURE && hg_public_key_size(SET) == 32 && hg_private_key_size(SET) == 64);
    TRUE(hg_seed_size(SET) == 48 && hg_seed_size(HG_ZKDILITHIUM) == 32 && hg_signature_size(HG_ZKDILITHIUM) == ZK_SIGNATURE);
    TRUE(hg_signature_size(0) + hg_public_key_size(0) + hg_private_key_size(1) + hg_seed_size(32) == 0);
}

static void engines(void)
{
    hg_engine *none = (hg_engine *)&failures;
    hg_engine_options options = HG_ENGINE_OPTIONS_INIT;
    BAD(hg_engine_new(&options, NULL), "engine: NULL");
    options.size = 0;
    BAD(hg_engine_new(&options, &none), "its size is 0");
    TRUE(none == NULL);
    options.size = sizeof options - 1;
    BAD(hg_engine_new(&options, &none), "HG_..._INIT");
    options.size = (size_t)-1;
    BAD(hg_engine_new(&options, &none), "HG_..._INIT");
    struct {
        hg_engine_options known;
        uint64_t later;
    } larger = {HG_ENGINE_OPTIONS_INIT, 0};
    larger.known.size = sizeof larger;
    OK(hg_engine_new(&larger.known, &none));
    hg_engine_free(none);
    larger.later = 1;
    IS(HG_UNSUPPORTED, hg_engine_new(&larger.known, &none), "does not have");
    BAD(hg_engine_new((const hg_engine_options *)((const char *)&larger + 1), &none), "not aligned");

    /* A program of the first release: its struct ends before device_timeout. */
    size_t first = offsetof(hg_engine_options, device_timeout);
    void *older = calloc(1, first);
    TRUE(older != NULL && first == 48);
    memcpy(older, &first, sizeof first);
    OK(hg_engine_new(older, &none));
    hg_engine_free(none);
    free(older);

    options.size = sizeof options;
    const uint64_t timeouts[] = {1, 5000, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        options.device_timeout = timeouts[i];
        OK(hg_engine_new(&options, &none));
        hg_engine_free(none);
    }
    options.device_timeout = 0;
    options.flags = 4;
    BAD(hg_engine_new(&options, &none), "flags: 0x4");
    options.flags = 0;
    const char *const devices[] = {"cpu:0", "cpu:0", NULL, "abacus:0", "cpu:x", "cpu:7"};
    options.device_count = 1;
    BAD(hg_engine_new(&options, &none), "devices: NULL");
    options.devices = devices;
    options.device_count = 0;
    BAD(hg_engine_new(&options, &none), "name one or more");
    options.device_count = 2;
    BAD(hg_engine_new(&options, &none), "named twice");
    options.device_count = 3;
    BAD(hg_engine_new(&options, &none), "device: NULL");
    const char *const wrong[] = {"no backend 'abacus'; there are cpu", "neither a number nor a UUID", "the devices are cpu:0"};
    for (int i = 3; i < 6; i++) {
        options.devices = devices + i;
        options.device_count = 1;
        BAD(hg_engine_new(&options, &none), wrong[i - 3]);
    }
    options.devices = devices;
    options.memory = 1;
    OK(hg_engine_new(&options, &none));
    hg_private_key *made = NULL;
    IS(HG_OUT_OF_MEMORY, hg_private_key_generate(none, SET, &made), "memory budget");
    TRUE(made == NULL);
    hg_engine_free(none);
    hg_engine_free(NULL);

    size_t length = 0;
    char text[4096];
    BAD(hg_devices(text, sizeof text, NULL), "length: NULL");
    BAD(hg_devices(NULL, 5, &length), "NULL");
    OK(hg_devices(NULL, 0, &length));
    IS(HG_BUFFER_TOO_SMALL, hg_devices(text, 1, &length), "the result has");
    OK(hg_devices(text, sizeof text, &length));
    TRUE(strncmp(text, "cpu:0 ", 6) == 0 && strlen(text) + 1 == length);
    BAD(hg_engine_devices(NULL, text, sizeof text, &length), "engine: NULL");
    OK(hg_engine_devices(engine, text, sizeof text, &length));
    TRUE(strncmp(text, "cpu:0 ", 6) == 0);
    BAD(hg_engine_notices(NULL, text, sizeof text, &length), "engine: NULL");
    OK(hg_engine_notices(engine, text, sizeof text, &length));
    TRUE(length == 1 && text[0] == '\0');
}

static void keys(void)
{
    hg_private_key *made = (hg_private_key *)&failures;
    hg_public_key *public_made = (hg_public_key *)&failures;
    BAD(hg_private_key_generate(NULL, SET, &made), "engine: NULL");
    TRUE(made == NULL);
    BAD(hg_private_key_generate(engine, SET, NULL), "key: NULL");
    BAD(hg_private_key_generate(engine, 3, &made), "no such set");
    for (int i = 0; i < 2; i++) {
        OK(hg_private_key_generate(engine, i == 0 ? SET : HG_ZKDILITHIUM, &made));
        OK(hg_private_key_check(engine, made));
        hg_private_key_free(made);
    }

    uint8_t out[8192];
    size_t length = 0;
    for (uint32_t format = HG_RAW; format <= HG_PEM; format++) {
        OK(hg_private_key_write(key, format, NULL, 0, &length));
        IS(HG_BUFFER_TOO_SMALL, hg_private_key_write(key, format, out, length - 1, &length), "the result has");
        OK(hg_private_key_write(key, format, out, sizeof out, &length));
        made = NULL;
        if (format == HG_RAW)
            OK(hg_private_key_from_raw(SET, out, length, &made));
        else
            OK(hg_private_key_read(out, length, &made));
        TRUE(hg_private_key_set(made) == SET);
        hg_private_key_free(made);
        BAD(hg_private_key_read(out, length / 2, &made), "");
        TRUE(made == NULL);
        OK(hg_public_key_write(public_key, format, out, sizeof out, &length));
        public_made = NULL;
        if (format == HG_RAW)
            OK(hg_public_key_from_raw(SET, out, length, &public_made));
        else
            OK(hg_public_key_read(out, length, &public_made));
        TRUE(hg_public_key_set(public_made) == SET);
        hg_public_key_free(public_made);
        BAD(hg_public_key_read(out, length / 2, &public_made), "");
    }
    IS(HG_UNSUPPORTED, hg_private_key_write(zk_key, HG_DER, out, sizeof out, &length), "no encoding");
    IS(HG_UNSUPPORTED, hg_public_key_write(zk_public_key, HG_DER, out, sizeof out, &length), "no encoding");
    OK(hg_public_key_write(zk_public_key, HG_PEM, out, sizeof out, &length));
    OK(hg_public_key_read(out, length, &public_made));
    TRUE(hg_public_key_set(public_made) == HG_ZKDILITHIUM);
    hg_public_key_free(public_made);
    OK(hg_private_key_write(zk_key, HG_PEM, out, sizeof out, &length));
    OK(hg_private_key_read(out, length, &made));
    TRUE(hg_private_key_set(made) == HG_ZKDILITHIUM);
    OK(hg_private_key_check(engine, made));
    hg_private_key_free(made);

    BAD(hg_private_key_write(NULL, HG_RAW, out, sizeof out, &length), "key: NULL");
    BAD(hg_private_key_write(key, 0, out, sizeof out, &length), "format 0");
    BAD(hg_private_key_write(key, HG_RAW, NULL, 9, &length), "NULL");
    BAD(hg_private_key_write(key, HG_RAW, out, sizeof out, NULL), "length: NULL");
    BAD(hg_private_key_write(key, HG_RAW, (uint8_t *)&length, sizeof length, &length), "overlaps length");
    BAD(hg_public_key_write(NULL, HG_RAW, out, sizeof out, &length), "key: NULL");
    BAD(hg_public_key_write(public_key, 4, out, sizeof out, &length), "format 4");
    BAD(hg_private_key_read(NULL, 5, &made), "data: NULL");
    BAD(hg_private_key_read(NULL, 0, &made), "not a PKCS#8");
    BAD(hg_private_key_read(out, (size_t)-1, &made), "no memory has room");
    BAD(hg_private_key_read(out, 5, NULL), "key: NULL");
    BAD(hg_public_key_read(NULL, 5, &public_made), "data: NULL");
    BAD(hg_public_key_read(out, 5, NULL), "key: NULL");
    BAD(hg_private_key_from_raw(SET, out, 63, &made), "has 64 bytes");
    BAD(hg_private_key_from_raw(0, out, 64, &made), "no such set");
    BAD(hg_private_key_from_raw(SET, NULL, 64, &made), "data: NULL");
    BAD(hg_private_key_from_raw(SET, out, 64, NULL), "key: NULL");
    BAD(hg_private_key_from_raw(HG_ZKDILITHIUM, out, 64, &made), "64");
    BAD(hg_public_key_from_raw(SET, out, 33, &public_made), "has 32 bytes");
    BAD(hg_public_key_from_raw(0, out, 32, &public_made), "no such set");
    BAD(hg_public_key_from_raw(SET, NULL, 32, &public_made), "data: NULL");
    BAD(hg_public_key_of(NULL, &public_made), "private_key: NULL");
    BAD(hg_public_key_of(key, NULL), "key: NULL");
    BAD(hg_private_key_check(NULL, key), "engine: NULL");
    BAD(hg_private_key_check(engine, NULL), "key: NULL");
    OK(hg_private_key_check(engine, key));
    OK(hg_private_key_write(key, HG_RAW, out, sizeof out, &length));
    out[0] ^= 1;
    IS(HG_KEY_DAMAGED, hg_private_key_from_raw(SET, out, length, &made), "damaged");
    TRUE(hg_private_key_set(NULL) == 0 && hg_public_key_set(NULL) == 0);
    hg_private_key_free(NULL);
    hg_public_key_free(NULL);
    hg_wipe(out, sizeof out);
}

static void messages(void)
{
    const size_t length = sizeof message;
    BAD(hg_sign(NULL, key, NULL, message, length, signature, SIGNATURE), "engine: NULL");
    BAD(hg_sign(engine, NULL, NULL, message, length, signature, SIGNATURE), "key: NULL");
    BAD(hg_sign(engine, key, NULL, NULL, length, signature, SIGNATURE), "message: NULL");
    BAD(hg_sign(engine, key, NULL, message, (size_t)-1, signature, SIGNATURE), "signature: it overlaps message");
    BAD(hg_sign(engine, key, NULL, message, length, NULL, SIGNATURE), "signature: NULL");
    BAD(hg_sign(engine, key, NULL, message, length, signature, SIGNATURE - 1), "has 17088 bytes");
    BAD(hg_sign(engine, key, NULL, signature + 5, 1, signature, SIGNATURE), "signature: it overlaps message");

    uint8_t context[256] = {0}, first[SIGNATURE];
    hg_message_options options = HG_MESSAGE_OPTIONS_INIT;
    options.context_length = 1;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "context: NULL");
    options.context = context;
    options.context_length = 256;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "256 bytes");
    options.context = signature;
    options.context_length = 1;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "overlaps context");
    options.context = context;
    options.prehash = 13;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "prehash 13");
    options.prehash = 0;
    options.flags = HG_MESSAGE_IS_DIGEST;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "which hash function");
    options.prehash = HG_SHA2_256;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "");
    options.flags = HG_INTERNAL_INTERFACE;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "internal interface");
    options.flags = 8;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "flags: 0x8");
    options.flags = HG_DETERMINISTIC;
    options.randomizer = context;
    options.randomizer_length = 16;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "deterministic");
    options.flags = 0;
    options.randomizer_length = 15;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "15");
    IS(HG_UNSUPPORTED, hg_sign(engine, zk_key, &options, message, length, zk_signature, ZK_SIGNATURE), "give NULL");
    options.size = 8;
    BAD(hg_sign(engine, key, &options, message, length, signature, SIGNATURE), "HG_..._INIT");

    /* What options choose is what is signed. */
    hg_message_options all = HG_MESSAGE_OPTIONS_INIT;
    all.context = context;
    all.context_length = 255;
    all.prehash = HG_SHA2_256;
    all.flags = HG_DETERMINISTIC;
    OK(hg_sign(engine, key, &all, message, length, first, SIGNATURE));
    uint8_t sum[32];
    OK(hg_sha256(engine, message, length, sum));
    all.flags |= HG_MESSAGE_IS_DIGEST;
    OK(hg_sign(engine, key, &all, sum, sizeof sum, signature, SIGNATURE));
    TRUE(memcmp(first, signature, SIGNATURE) == 0);
    OK(hg_verify(engine, public_key, &all, sum, sizeof sum, signature, SIGNATURE));
    all.context_length = 254;
    IS(HG_INVALID_SIGNATURE, hg_verify(engine, public_key, &all, sum, sizeof sum, signature, SIGNATURE), "not valid");

    OK(hg_sign(engine, key, NULL, NULL, 0, signature, SIGNATURE));
    OK(hg_verify(engine, public_key, NULL, NULL, 0, signature, SIGNATURE));
    OK(hg_sign(engine, key, NULL, message, length, signature, SIGNATURE));
    OK(hg_sign(engine, zk_key, NULL, message, length, zk_signature, ZK_SIGNATURE));
    OK(hg_verify(engine, public_key, NULL, message, length, signature, SIGNATURE));
    OK(hg_verify(engine, zk_public_key, NULL, message, length, zk_signature, ZK_SIGNATURE));
    IS(HG_INVALID_SIGNATURE, hg_verify(engine, zk_public_key, NULL, message, 1, zk_signature, ZK_SIGNATURE), "not valid");
    BAD(hg_verify(NULL, public_key, NULL, message, length, signature, SIGNATURE), "engine: NULL");
    BAD(hg_verify(engine, NULL, NULL, message, length, signature, SIGNATURE), "key: NULL");
    BAD(hg_verify(engine, public_key, NULL, NULL, length, signature, SIGNATURE), "message: NULL");
    BAD(hg_verify(engine, public_key, NULL, message, length, NULL, SIGNATURE), "signature: NULL");
    BAD(hg_verify(engine, public_key, NULL, message, length, signature, SIGNATURE - 1), "has 17088 bytes");
    BAD(hg_verify(engine, zk_public_key, NULL, message, length, zk_signature, 5), "has 2340 bytes");
    BAD(hg_verify(engine, public_key, &options, message, length, signature, SIGNATURE), "HG_..._INIT");
    IS(HG_UNSUPPORTED, hg_verify(engine, zk_public_key, &all, message, length, zk_signature, ZK_SIGNATURE), "give NULL");

    BAD(hg_sha256(NULL, message, 1, sum), "engine: NULL");
    BAD(hg_sha256(engine, NULL, 1, sum), "message: NULL");
    BAD(hg_sha256(engine, message, 1, NULL), "sum: NULL");
    BAD(hg_sha256(engine, sum, 1, sum), "sum: it overlaps message");
    OK(hg_sha256(engine, NULL, 0, sum));
    TRUE(sum[0] == 0xe3 && sum[31] == 0x55);
}

/* A result that a callback got. */
struct answer {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int calls;
    hg_status status;
    uint8_t result[SIGNATURE];
    size_t length;
    char text[200];
};

static void keep(void *user, hg_status status, const uint8_t *result, size_t length)
{
    struct answer *answer = user;
    pthread_mutex_lock(&answer->lock);
    answer->calls++;
    answer->status = status;
    answer->length = length;
    if (length > 0)
        memcpy(answer->result, result, length);
    snprintf(answer->text, sizeof answer->text, "%s", hg_error_text());
    pthread_cond_signal(&answer->done);
    pthread_mutex_unlock(&answer->lock);
}

static struct answer answer = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, {0}, 0, {0}};
static struct answer cancelled_answer = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, {0}, 0, {0}};

/* Waits for so many calls of the callback with this answer. */
static void wait_for(struct answer *to, int calls)
{
    pthread_mutex_lock(&to->lock);
    while (to->calls < calls)
        pthread_cond_wait(&to->done, &to->lock);
    pthread_mutex_unlock(&to->lock);
    TRUE(to->calls == calls);
}

static void queued(void)
{
    const size_t length = sizeof message;
    hg_message_options wrong = HG_MESSAGE_OPTIONS_INIT;
    wrong.flags = 8;
    BAD(hg_sign_queued(NULL, key, NULL, message, length, keep, &answer, 0, NULL), "engine: NULL");
    BAD(hg_sign_queued(engine, NULL, NULL, message, length, keep, &answer, 0, NULL), "key: NULL");
    BAD(hg_sign_queued(engine, key, NULL, NULL, length, keep, &answer, 0, NULL), "message: NULL");
    BAD(hg_sign_queued(engine, key, NULL, message, length, NULL, &answer, 0, NULL), "done: NULL");
    BAD(hg_sign_queued(engine, key, &wrong, message, length, keep, &answer, 0, NULL), "flags: 0x8");
    OK(hg_sign_queued(engine, key, NULL, message, length, keep, &answer, 0, NULL));
    wait_for(&answer, 1);
    TRUE(answer.status == HG_OK && answer.length == SIGNATURE);
    memcpy(signature, answer.result, SIGNATURE);
    OK(hg_verify(engine, public_key, NULL, message, length, signature, SIGNATURE));

    BAD(hg_verify_queued(NULL, public_key, NULL, message, length, signature, SIGNATURE, keep, &answer, 0, NULL), "engine: NULL");
    BAD(hg_verify_queued(engine, NULL, NULL, message, length, signature, SIGNATURE, keep, &answer, 0, NULL), "key: NULL");
    BAD(hg_verify_queued(engine, public_key, NULL, NULL, length, signature, SIGNATURE, keep, &answer, 0, NULL), "message: NULL");
    BAD(hg_verify_queued(engine, public_key, NULL, message, length, NULL, SIGNATURE, keep, &answer, 0, NULL), "signature: NULL");
    BAD(hg_verify_queued(engine, public_key, NULL, message, length, signature, 5, keep, &answer, 0, NULL), "has 17088 bytes");
    BAD(hg_verify_queued(engine, public_key, NULL, message, length, signature, SIGNATURE, NULL, &answer, 0, NULL), "done: NULL");
    OK(hg_verify_queued(engine, public_key, NULL, message, length, signature, SIGNATURE, keep, &answer, 0, NULL));
    wait_for(&answer, 2);
    TRUE(answer.status == HG_OK && answer.length == 0);
    OK(hg_verify_queued(engine, public_key, NULL, message, 1, signature, SIGNATURE, keep, &answer, 0, NULL));
    wait_for(&answer, 3);
    TRUE(answer.status == HG_INVALID_SIGNATURE && strstr(answer.text, "not valid") != NULL);

    /* A key that is freed while its job waits. */
    uint8_t raw[64];
    size_t raw_length;
    hg_private_key *copy = NULL;
    OK(hg_private_key_write(key, HG_RAW, raw, sizeof raw, &raw_length));
    OK(hg_private_key_from_raw(SET, raw, raw_length, &copy));
    OK(hg_sign_queued(engine, copy, NULL, message, length, keep, &answer, 0, NULL));
    hg_private_key_free(copy);
    wait_for(&answer, 4);
    TRUE(answer.status == HG_OK && answer.length == SIGNATURE);
    OK(hg_sign_queued(engine, zk_key, NULL, message, length, keep, &answer, 0, NULL));
    wait_for(&answer, 5);
    TRUE(answer.status == HG_OK && answer.length == ZK_SIGNATURE);
    OK(hg_verify_queued(engine, zk_public_key, NULL, message, length, answer.result, ZK_SIGNATURE, keep, &answer, 0, NULL));
    wait_for(&answer, 6);
    TRUE(answer.status == HG_OK);
    OK(hg_engine_wait_for_room(engine));
    BAD(hg_engine_wait_for_room(NULL), "engine: NULL");
    BAD(hg_engine_drain(NULL, 1000), "engine: NULL");

    hg_engine *own = NULL;
    hg_engine_options options = HG_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    OK(hg_engine_new(&options, &own));
    for (int i = 0; i < 20; i++)
        OK(hg_verify_queued(own, public_key, NULL, message, length, signature, SIGNATURE, keep, &answer, 0, NULL));
    OK(hg_engine_drain(own, 60000));
    wait_for(&answer, 26);
    IS(HG_CANCELLED, hg_sign_queued(own, key, NULL, message, length, keep, &answer, 0, NULL), "");
    hg_engine_free(own);
    OK(hg_engine_new(&options, &own));
    for (int i = 0; i < 20; i++)
        OK(hg_sign_queued(own, key, NULL, message, length, keep, &answer, 0, NULL));
    hg_engine_free(own);
    /* Each has been answered, most of them by HG_CANCELLED. */
    wait_for(&answer, 46);

    /* Whether a job is cancelled before it is done is a matter of time: it is answered once in any case. */
    hg_ticket *ticket = (hg_ticket *)&failures;
    BAD(hg_sign_queued(NULL, key, NULL, message, length, keep, &answer, 0, &ticket), "engine: NULL");
    OK(hg_sign_queued(engine, key, NULL, message, length, keep, &answer, 60000, &ticket));
    OK(hg_ticket_cancel(ticket));
    OK(hg_ticket_cancel(ticket));
    wait_for(&answer, 47);
    TRUE(answer.status == HG_CANCELLED ? strstr(answer.text, "cancelled") != NULL : answer.status == HG_OK);
    hg_ticket_free(ticket);
    hg_ticket_free(NULL);
    BAD(hg_ticket_cancel(NULL), "ticket: NULL");
    /* A handle is freed before its job is done, and cancels a job that is done. */
    OK(hg_verify_queued(engine, public_key, NULL, message, length, signature, SIGNATURE, keep, &answer, 0, &ticket));
    hg_ticket_free(ticket);
    wait_for(&answer, 48);
    OK(hg_verify_queued(engine, public_key, NULL, message, length, signature, SIGNATURE, keep, &answer, 0, &ticket));
    wait_for(&answer, 49);
    OK(hg_ticket_cancel(ticket));
    wait_for(&answer, 49);
    hg_ticket_free(ticket);

    /* A deadline that passes while others' jobs are done. Now and then the job begins in time, with the others: then once more. */
    static struct answer late = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, {0}, 0, {0}};
    for (int round = 1; late.status != HG_CANCELLED && round <= 20; round++) {
        for (int i = 0; i < 20; i++)
            OK(hg_sign_queued(engine, key, NULL, message, length, keep, &answer, 0, NULL));
        OK(hg_sign_queued(engine, key, NULL, message, length, keep, &late, 1, NULL));
        wait_for(&answer, 49 + 20 * round);
        pthread_mutex_lock(&late.lock);
        while (late.calls < round)
            pthread_cond_wait(&late.done, &late.lock);
        pthread_mutex_unlock(&late.lock);
        TRUE(late.calls == round && (late.status == HG_CANCELLED || late.length == SIGNATURE));
    }
    TRUE(late.status == HG_CANCELLED && late.length == 0 && strstr(late.text, "deadline") != NULL);
}

/* The statuses of one call of each function that computes, by this engine. */
enum { CALLS = 11 };
static void computed_by(const hg_engine *by, hg_status *got)
{
    static uint8_t made_signature[SIGNATURE];
    uint8_t sum[32], raw[64], raw_public[32], statuses[1] = {HG_ROW_SIGNED};
    hg_private_key *made = NULL;
    hg_column text = {message, 3, 3, 0, NULL}, signed_text = {signature, SIGNATURE, SIGNATURE, 0, NULL};
    hg_sign_batch batch = HG_SIGN_BATCH_INIT;
    hg_verify_batch signed_batch = HG_VERIFY_BATCH_INIT;
    batch.rows = signed_batch.rows = 1;
    batch.key = key;
    signed_batch.key = public_key;
    batch.messages = signed_batch.messages = text;
    signed_batch.signatures = signed_text;
    got[0] = hg_sign(by, key, NULL, message, 3, made_signature, SIGNATURE);
    got[1] = hg_verify(by, public_key, NULL, message, 3, signature, SIGNATURE);
    got[2] = hg_sign(by, zk_key, NULL, message, 3, made_signature, ZK_SIGNATURE);
    got[3] = hg_private_key_generate(by, SET, &made);
    hg_private_key_free(made);
    got[4] = hg_private_key_check(by, key);
    got[5] = hg_private_key_cache(by, key, NULL, &made);
    hg_private_key_free(made);
    got[6] = hg_sign_rows(by, &batch, NULL, made_signature, SIGNATURE, statuses);
    TRUE(statuses[0] == (got[6] == HG_OK ? HG_ROW_SIGNED : HG_ROW_NOT_COMPUTED));
    got[7] = hg_verify_rows(by, &signed_batch, NULL, statuses);
    TRUE(statuses[0] == (got[7] == HG_OK ? HG_ROW_VALID : HG_ROW_NOT_COMPUTED));
    got[8] = hg_keygen_rows(by, SET, 1, NULL, 0, raw, sizeof raw, raw_public, sizeof raw_public);
    got[9] = hg_sha256(by, message, 3, sum);
    got[10] = hg_sha256_rows(by, &text, 1, sum, sizeof sum, statuses);
    hg_wipe(raw, sizeof raw);
}

/* Each of these calls has this status, with a sentence that has these words. */
static void expect_all(int line, const hg_engine *by, hg_status wanted, const char *words)
{
    hg_status got[CALLS];
    computed_by(by, got);
    /* The text is that of the latest call that failed. */
    for (int i = 0; i < CALLS; i++) {
        if (got[i] != wanted)
            fprintf(stderr, "call %d: ", i);
        expect_true(line, got[i] == wanted, hg_status_text(got[i]));
    }
    expect_true(line, wanted == HG_OK || strstr(hg_error_text(), words) != NULL, words);
}

/* Engines for work with other options. */
static void work_options(void)
{
    hg_engine *with = (hg_engine *)&failures;
    hg_work_options options = HG_WORK_OPTIONS_INIT;
    BAD(hg_engine_with(NULL, &options, &with), "engine: NULL");
    TRUE(with == NULL);
    BAD(hg_engine_with(engine, &options, NULL), "with: NULL");
    const size_t sizes[] = {0, sizeof options - 1, (size_t)-1};
    for (int i = 0; i < 3; i++) {
        options.size = sizes[i];
        BAD(hg_engine_with(engine, &options, &with), "size");
    }
    struct {
        hg_work_options known;
        uint64_t later;
    } larger = {HG_WORK_OPTIONS_INIT, 1};
    larger.known.size = sizeof larger;
    IS(HG_UNSUPPORTED, hg_engine_with(engine, &larger.known, &with), "does not have");
    larger.later = 0;
    OK(hg_engine_with(engine, &larger.known, &with));
    hg_engine_free(with);
    BAD(hg_engine_with(engine, (const hg_work_options *)((const char *)&larger + 1), &with), "not aligned");
    options.size = sizeof options;
    options.flags = 4;
    BAD(hg_engine_with(engine, &options, &with), "flags: 0x4");
    options.flags = 0;
    options.reserved = 1;
    IS(HG_UNSUPPORTED, hg_engine_with(engine, &options, &with), "reserved");
    TRUE(with == NULL);
    options.reserved = 0;

    BAD(hg_engine_cancel(NULL), "engine: NULL");
    BAD(hg_engine_cancel(engine), "hg_engine_with");

    /* The same signatures and verdicts, whatever is checked. */
    OK(hg_sign(engine, key, NULL, message, 3, signature, SIGNATURE));
    hg_message_options same = HG_MESSAGE_OPTIONS_INIT;
    same.flags = HG_DETERMINISTIC;
    static uint8_t once[SIGNATURE], again[SIGNATURE];
    OK(hg_sign(engine, key, &same, message, 3, once, SIGNATURE));
    for (uint32_t flags = 0; flags <= (HG_VERIFY_SIGNATURES | HG_REDUNDANT); flags++) {
        options.flags = flags;
        OK(hg_engine_with(engine, &options, &with));
        expect_all(__LINE__, with, HG_OK, "");
        memset(again, 0, sizeof again);
        OK(hg_sign(with, key, &same, message, 3, again, SIGNATURE));
        TRUE(memcmp(once, again, SIGNATURE) == 0);
        IS(HG_INVALID_SIGNATURE, hg_verify(with, public_key, NULL, message, 2, signature, SIGNATURE), "not valid");
        hg_engine_free(with);
    }
    const uint64_t long_times[] = {3600000, UINT64_MAX};
    for (int i = 0; i < 2; i++) {
        options.timeout = long_times[i];
        OK(hg_engine_with(engine, &options, &with));
        OK(hg_sign(with, key, NULL, message, 3, again, SIGNATURE));
        hg_engine_free(with);
    }

    /* Cancelled work ends; that of the parent and that of another handle go on, and so do handles of the cancelled handle. */
    hg_engine *other = NULL, *child = NULL;
    OK(hg_engine_with(engine, NULL, &with));
    OK(hg_engine_with(engine, NULL, &other));
    OK(hg_sign(with, key, NULL, message, 3, again, SIGNATURE));
    OK(hg_engine_cancel(with));
    OK(hg_engine_cancel(with));
    expect_all(__LINE__, with, HG_CANCELLED, "its caller cancelled it");
    OK(hg_engine_with(with, NULL, &child));
    for (int i = 0; i < 3; i++)
        expect_all(__LINE__, i == 0 ? engine : i == 1 ? other : child, HG_OK, "");
    struct answer *to = &cancelled_answer;
    OK(hg_sign_queued(with, key, NULL, message, 3, keep, to, 0, NULL));
    wait_for(to, 1);
    TRUE(to->status == HG_CANCELLED && to->length == 0 && strstr(to->text, "its caller cancelled it") != NULL);
    OK(hg_sign_queued(other, key, NULL, message, 3, keep, to, 0, NULL));
    wait_for(to, 2);
    TRUE(to->status == HG_OK && to->length == SIGNATURE);
    hg_engine_free(child);
    hg_engine_free(other);
    hg_engine_free(with);

    /* A handle holds what it needs: the engine that it was made from is freed first. */
    hg_engine *own = NULL;
    hg_engine_options of_engine = HG_ENGINE_OPTIONS_INIT;
    of_engine.threads = 1;
    OK(hg_engine_new(&of_engine, &own));
    options.timeout = 0;
    options.flags = HG_REDUNDANT;
    OK(hg_engine_with(own, &options, &with));
    OK(hg_engine_with(with, NULL, &child));
    OK(hg_sign_queued(with, key, NULL, message, 3, keep, to, 0, NULL));
    hg_engine_free(own);
    wait_for(to, 3);
    TRUE(to->status == HG_OK && to->length == SIGNATURE);
    expect_all(__LINE__, with, HG_OK, "");
    hg_engine_free(with);
    expect_all(__LINE__, child, HG_OK, "");
    OK(hg_engine_cancel(child));
    expect_all(__LINE__, child, HG_CANCELLED, "its caller cancelled it");
    hg_engine_free(child);
}

/* A call that would take very long is cancelled by another thread. */
static void *cancels(void *with)
{
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
    return hg_engine_cancel(with) == HG_OK ? NULL : with;
}

static void cancelled_meanwhile(void)
{
    enum { MANY = 20000 };
    hg_engine *with = NULL;
    hg_work_options options = HG_WORK_OPTIONS_INIT;
    uint8_t *private_keys = malloc(MANY * 64), *public_keys = malloc(MANY * 32);
    TRUE(private_keys != NULL && public_keys != NULL);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *failed = NULL;
        options.timeout = i == 0 ? 0 : 20;
        OK(hg_engine_with(engine, &options, &with));
        if (i == 2) {
            /* The timeout of the handle that another one is made from holds for both. */
            hg_engine *of = with;
            OK(hg_engine_with(of, NULL, &with));
            hg_engine_free(of);
        }
        if (i == 0)
            TRUE(pthread_create(&thread, NULL, cancels, with) == 0);
        IS(HG_CANCELLED, hg_keygen_rows(with, SET, MANY, NULL, 0, private_keys, MANY * 64, public_keys, MANY * 32),
           i == 0 ? "its caller cancelled it" : "deadline");
        if (i == 0)
            TRUE(pthread_join(thread, &failed) == 0 && failed == NULL);
        hg_engine_free(with);
    }
    hg_wipe(private_keys, MANY * 64);
    free(private_keys);
    free(public_keys);
}

/* The lines of a PEM file's block, with this text between them. */
static char *joined(char *to, const char *body, const char *end, const char *between)
{
    for (const char *at = body; at < end; at++) {
        if (*at != '\n')
            *to++ = *at;
        else if (at + 1 < end)
            to += sprintf(to, "%s", between);
    }
    return to;
}

/* A form of a PEM file, as vectors/pem/forms.tsv describes it: `form` is a template. Returns its length. */
static size_t filled(const char *name, const char *form, const char *pem, const char *other, char *out)
{
    const char *body = strchr(pem, '\n') + 1, *end = strstr(pem, "-----END ");
    char *to = out;
    for (; *form != '\0'; form++) {
        if (*form != '%' && *form != '\\') {
            *to++ = *form;
            continue;
        }
        int is_escape = *form == '\\';
        switch (*++form) {
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'u': to += sprintf(to, "\xef\xbb\xbf"); break;
        case 'B': to += sprintf(to, "%.*s", (int)(body - 1 - pem), pem); break;
        case 'E': to += sprintf(to, "%.*s", (int)strcspn(end, "\n"), end); break;
        case 'L': to = joined(to, body, end, "\n"); break;
        case '1': to = joined(to, body, end, ""); break;
        case 'W': to = joined(to, body, end, " \n"); break;
        case 'S': to = joined(to, body, end, " "); break;
        case 'C': to = joined(to, body, end, "\r"); break;
        case 'D': to = joined(to, body, end, "\r\n"); break;
        case 'N': to = joined(to, body, end, "\\n"); break;
        case 'O': to += sprintf(to, "%s", other); break;
        default: TRUE(is_escape && *form == '\\'); *to++ = *form;
        }
    }
    size_t length = (size_t)(to - out);
    if (strstr(name, "16") == NULL)
        return length;
    /* All of it is ASCII. */
    int is_big = strstr(name, "16BE") != NULL;
    for (size_t at = length; at-- > 0;) {
        char letter = out[at];
        out[2 * at + 2 + (size_t)is_big] = letter;
        out[2 * at + 3 - (size_t)is_big] = 0;
    }
    memcpy(out, is_big ? "\xfe\xff" : "\xff\xfe", 2);
    return 2 * length + 2;
}

/* Each form of a PEM file is read or refused as by every other reader of keys, and a key whose parts do not fit together by all. */
static void forms(const char *path)
{
    enum { ROOM = 1 << 16 };
    static char pems[5][ROOM / 4], file[ROOM], row[1024];
    size_t length = 0;
    const uint8_t *word = (const uint8_t *)"word";
    OK(hg_private_key_write(key, HG_PEM, (uint8_t *)pems[0], sizeof pems[0] - 1, &length));
    OK(hg_public_key_write(public_key, HG_PEM, (uint8_t *)pems[1], sizeof pems[1] - 1, &length));
    OK(hg_private_key_write_encrypted(key, word, 4, HG_PEM, (uint8_t *)pems[2], sizeof pems[2] - 1, &length));
    OK(hg_private_key_write(zk_key, HG_PEM, (uint8_t *)pems[3], sizeof pems[3] - 1, &length));
    OK(hg_public_key_write(zk_public_key, HG_PEM, (uint8_t *)pems[4], sizeof pems[4] - 1, &length));
    const int others[] = {1, 0, 1, 4, 3};
    FILE *table = fopen(path, "r");
    TRUE(table != NULL);
    int rows = 0;
    while (table != NULL && fgets(row, sizeof row, table) != NULL) {
        if (row[0] == '#')
            continue;
        char *expected = strchr(row, '\t'), *form = strchr(expected + 1, '\t');
        *expected++ = '\0';
        *form++ = '\0';
        form[strcspn(form, "\n")] = '\0';
        hg_status wanted = strcmp(expected, "read") == 0 ? HG_OK : HG_BAD_INPUT;
        rows++;
        /* A passphrase takes long to try. */
        for (int kind = 0; kind < 5; kind++) {
            length = filled(row, form, pems[kind], pems[others[kind]], file);
            const uint8_t *data = (const uint8_t *)file;
            hg_private_key *made = NULL;
            hg_public_key *public_made = NULL;
            if (kind == 1 || kind == 4)
                IS(wanted, hg_public_key_read(data, length, &public_made), expected);
            else if (kind == 2)
                IS(wanted == HG_OK ? HG_PASSPHRASE : wanted, hg_private_key_read(data, length, &made), wanted == HG_OK ? "encrypted" : expected);
            else
                IS(wanted, hg_private_key_read(data, length, &made), expected);
            char part[9] = {0};
            memcpy(part, pems[kind] + 90, 8);
            TRUE(strstr(hg_error_text(), part) == NULL);
            hg_private_key_free(made);
            hg_public_key_free(public_made);
        }
    }
    TRUE(rows > 30);
    if (table != NULL)
        fclose(table);
    hg_private_key *made = NULL;
    length = filled("", "\\u text\\n%B\\n%1\\n%E\\ntext", pems[2], "", file);
    OK(hg_private_key_read_encrypted((const uint8_t *)file, length, word, 4, &made));
    hg_private_key_free(made);

    uint8_t raw[3936];
    const hg_set all[] = {SET, HG_ZKDILITHIUM};
    for (int i = 0; i < 2; i++) {
        OK(hg_private_key_write(i == 0 ? key : zk_key, HG_RAW, raw, sizeof raw, &length));
        const size_t at[] = {0, length - 1};
        for (int j = 0; j < 2; j++) {
            raw[at[j]] ^= 1;
            made = NULL;
            IS(HG_KEY_DAMAGED, hg_private_key_from_raw(all[i], raw, length, &made), "damaged");
            TRUE(made == NULL);
            raw[at[j]] ^= 1;
        }
    }
}

static void encrypted(void)
{
    const uint8_t *passphrase = (const uint8_t *)"correct horse";
    uint8_t out[2048];
    size_t length = 0;
    hg_private_key *made = (hg_private_key *)&failures;
    for (uint32_t format = HG_DER; format <= HG_PEM; format++) {
        OK(hg_private_key_write_encrypted(key, passphrase, 13, format, out, sizeof out, &length));
        TRUE(length <= (format == HG_DER ? 512 : 1024));
        IS(HG_PASSPHRASE, hg_private_key_read(out, length, &made), "passphrase");
        TRUE(made == NULL);
        IS(HG_PASSPHRASE, hg_private_key_read_encrypted(out, length, passphrase, 12, &made), "passphrase is wrong");
        OK(hg_private_key_read_encrypted(out, length, passphrase, 13, &made));
        TRUE(hg_private_key_set(made) == SET);
        hg_private_key_free(made);
        BAD(hg_private_key_read_encrypted(out, length / 2, passphrase, 13, &made), "");
    }
    BAD(hg_private_key_read_encrypted(NULL, 5, passphrase, 13, &made), "data: NULL");
    BAD(hg_private_key_read_encrypted(out, length, NULL, 13, &made), "passphrase: NULL");
    BAD(hg_private_key_read_encrypted(out, length, passphrase, 13, NULL), "key: NULL");
    BAD(hg_private_key_write_encrypted(NULL, passphrase, 13, HG_PEM, out, sizeof out, &length), "key: NULL");
    BAD(hg_private_key_write_encrypted(key, NULL, 13, HG_PEM, out, sizeof out, &length), "passphrase: NULL");
    BAD(hg_private_key_write_encrypted(key, passphrase, 0, HG_PEM, out, sizeof out, &length), "passphrase: it is empty");
    BAD(hg_private_key_write_encrypted(key, passphrase, 13, HG_RAW, out, sizeof out, &length), "HG_DER or HG_PEM");
    BAD(hg_private_key_write_encrypted(key, passphrase, 13, HG_PEM, out, sizeof out, NULL), "length: NULL");
    IS(HG_BUFFER_TOO_SMALL, hg_private_key_write_encrypted(key, passphrase, 13, HG_PEM, out, 9, &length), "the result has");
    IS(HG_UNSUPPORTED, hg_private_key_write_encrypted(zk_key, passphrase, 13, HG_PEM, out, sizeof out, &length), "zkDilithium");
}

/* A key with cached layers signs as the key without them. */
static void cached(void)
{
    TRUE(hg_cache_size(SET, 1) == 15 * 16 && hg_cache_size(SET, 2) == 9 * 15 * 16);
    TRUE(hg_cache_size(SET, 0) + hg_cache_size(SET, 22) + hg_cache_size(SET, 23) + hg_cache_size(SET, UINT32_MAX) == 0);
    TRUE(hg_cache_size(0, 1) + hg_cache_size(HG_ZKDILITHIUM, 1) == 0);

    hg_private_key *made = (hg_private_key *)&failures, *other = NULL;
    hg_cache_options options = HG_CACHE_OPTIONS_INIT;
    BAD(hg_private_key_cache(NULL, key, NULL, &made), "engine: NULL");
    TRUE(made == NULL);
    BAD(hg_private_key_cache(engine, NULL, NULL, &made), "key: NULL");
    BAD(hg_private_key_cache(engine, key, NULL, NULL), "cached: NULL");
    IS(HG_UNSUPPORTED, hg_private_key_cache(engine, zk_key, NULL, &made), "no layers");
    options.layers = 23;
    BAD(hg_private_key_cache(engine, key, &options, &made), "23 cached layers");
    options.layers = UINT32_MAX;
    BAD(hg_private_key_cache(engine, key, &options, &made), "ask for so many or fewer");
    options.layers = 10;
    IS(HG_OUT_OF_MEMORY, hg_private_key_cache(engine, key, &options, &made), "memory");
    options.memory = 1;
    BAD(hg_private_key_cache(engine, key, &options, &made), "give one of them");
    options.layers = 0;
    options.reserved = 1;
    IS(HG_UNSUPPORTED, hg_private_key_cache(engine, key, &options, &made), "reserved: it is 1");
    options.reserved = 0;
    options.size = 8;
    BAD(hg_private_key_cache(engine, key, &options, &made), "HG_..._INIT");
    options.size = sizeof options;
    TRUE(made == NULL);
    uint8_t raw[64];
    size_t length = 0;
    OK(hg_private_key_write(key, HG_RAW, raw, sizeof raw, &length));
    raw[0] ^= 1;
    IS(HG_KEY_DAMAGED, hg_private_key_from_raw(SET, raw, length, &other), "damaged");
    TRUE(other == NULL);
    hg_wipe(raw, sizeof raw);

    /* As many layers as fit: the sizes of none, one and two. */
    for (uint32_t layers = 0; layers < 3; layers++) {
        options.memory = hg_cache_size(SET, layers + 1) - 1;
        OK(hg_private_key_cache(engine, key, &options, &made));
        TRUE(hg_private_key_cached_layers(made) == layers);
        hg_private_key_free(made);
    }
    /* Sizes for more layers than can be cached: those that can be cached need more memory than the engine has. */
    const uint64_t large[] = {UINT64_C(4) << 40, UINT64_C(1) << 63, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        options.memory = large[i];
        IS(HG_OUT_OF_MEMORY, hg_private_key_cache(engine, key, &options, &made), "memory");
    }
    OK(hg_private_key_cache(engine, key, NULL, &other));
    TRUE(hg_private_key_cached_layers(key) == 0 && hg_private_key_cached_layers(other) == 1);
    TRUE(hg_private_key_cached_layers(NULL) == 0 && hg_private_key_cached_layers(zk_key) == 0);
    options.memory = 0;
    options.layers = 2;
    OK(hg_private_key_cache(engine, other, &options, &made));
    TRUE(hg_private_key_cached_layers(made) == 2 && hg_private_key_set(made) == SET);

    uint8_t first[SIGNATURE], statuses[2], texts[2] = "ab";
    uint8_t *signatures = malloc(2 * SIGNATURE);
    hg_message_options same = HG_MESSAGE_OPTIONS_INIT;
    same.flags = HG_DETERMINISTIC;
    OK(hg_sign(engine, key, &same, texts, 1, first, SIGNATURE));
    OK(hg_sign(engine, made, &same, texts, 1, signature, SIGNATURE));
    TRUE(memcmp(first, signature, SIGNATURE) == 0);
    /* Rows: all keys of a table keep the same number of layers. */
    const hg_private_key *table[] = {made, other};
    uint32_t index[2] = {0, 0};
    hg_sign_batch batch = HG_SIGN_BATCH_INIT;
    batch.rows = 2;
    batch.messages = (hg_column){texts, sizeof texts, 1, 0, NULL};
    batch.table = table;
    batch.table_length = 2;
    batch.key_index = index;
    BAD(hg_sign_rows(engine, &batch, &same, signatures, 2 * SIGNATURE, statuses), "give all keys the same number");
    batch.table_length = 1;
    OK(hg_sign_rows(engine, &batch, &same, signatures, 2 * SIGNATURE, statuses));
    TRUE(statuses[0] == HG_ROW_SIGNED && statuses[1] == HG_ROW_SIGNED && memcmp(first, signatures, SIGNATURE) == 0);
    /* A queued job keeps the nodes. */
    const int calls = answer.calls;
    OK(hg_sign_queued(engine, made, &same, texts, 1, keep, &answer, 0, NULL));
    hg_private_key_free(made);
    hg_private_key_free(other);
    wait_for(&answer, calls + 1);
    TRUE(answer.status == HG_OK && answer.length == SIGNATURE && memcmp(first, answer.result, SIGNATURE) == 0);
    free(signatures);
}

static void sign_rows(void)
{
    uint8_t texts[ROWS * 3] = "abcdefghijk", statuses[ROWS];
    uint8_t *signatures = malloc(ROWS * SIGNATURE);
    const hg_private_key *table[] = {key, key, NULL, zk_key};
    uint32_t index[ROWS] = {0, 1, 0, 9};
    hg_sign_batch batch = HG_SIGN_BATCH_INIT;
    hg_column packed = {texts, sizeof texts, 2, 3, NULL};
    const size_t all = ROWS * SIGNATURE;
    batch.rows = ROWS;
    batch.messages = packed;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "there is no key");
    batch.key = key;
    BAD(hg_sign_rows(NULL, &batch, NULL, signatures, all, statuses), "engine: NULL");
    BAD(hg_sign_rows(engine, NULL, NULL, signatures, all, statuses), "batch: NULL");
    BAD(hg_sign_rows(engine, &batch, NULL, NULL, all, statuses), "signatures: NULL");
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all - 1, statuses), "signatures");
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, NULL), "statuses: NULL");
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, signatures + 9), "statuses: it overlaps signatures");
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, texts + 2), "statuses: it overlaps messages");
    batch.messages.bytes = signatures;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "signatures: it overlaps messages");
    batch.messages.bytes = NULL;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "messages: NULL");
    batch.messages = packed;
    batch.messages.length = 10;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "do not fit");
    batch.messages = packed;
    batch.messages.stride = 1;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "overlap");
    batch.messages.stride = (size_t)-1;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "do not fit");
    batch.messages = packed;
    batch.rows = (size_t)-1;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "no memory has room");
    batch.rows = ROWS;
    batch.table = table;
    batch.table_length = 2;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "give one of them");
    batch.key = NULL;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "key_index: NULL");
    batch.key_index = index;
    batch.table_length = 0;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "there is no key");
    batch.table_length = 3;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "a key of the table: NULL");
    table[2] = zk_key;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "both schemes");
    batch.size = 1;
    BAD(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses), "HG_..._INIT");
    batch.size = sizeof batch;

    batch.table_length = 2;
    memset(statuses, 0xee, sizeof statuses);
    OK(hg_sign_rows(engine, &batch, NULL, signatures, all, statuses));
    TRUE(statuses[0] == HG_ROW_SIGNED && statuses[1] == HG_ROW_SIGNED && statuses[3] == HG_ROW_NO_SUCH_KEY);
    OK(hg_verify(engine, public_key, NULL, texts + 3, 2, signatures + SIGNATURE, SIGNATURE));
    batch.table = table + 3;
    batch.table_length = 1;
    OK(hg_sign_rows(engine, &batch, NULL, signatures, ROWS * ZK_SIGNATURE, statuses));
    TRUE(statuses[0] == HG_ROW_SIGNED && statuses[1] == HG_ROW_NO_SUCH_KEY);
    OK(hg_verify(engine, zk_public_key, NULL, texts, 2, signatures, ZK_SIGNATURE));
    batch.rows = 0;
    OK(hg_sign_rows(engine, &batch, NULL, NULL, 0, NULL));
    free(signatures);
}

static void verify_rows(void)
{
    uint8_t statuses[ROWS], raw[32];
    size_t length;
    OK(hg_public_key_write(public_key, HG_RAW, raw, sizeof raw, &length));
    OK(hg_sign(engine, key, NULL, message, 3, signature, SIGNATURE));
    const hg_public_key *table[] = {public_key, public_key, NULL};
    uint32_t index[2] = {1, 5};
    hg_verify_batch batch = HG_VERIFY_BATCH_INIT;
    hg_column text = {message, 3, 3, 0, NULL}, signed_text = {signature, SIGNATURE, SIGNATURE, 0, NULL}, none = {NULL, 0, 0, 0, NULL};
    hg_column encoded = {raw, sizeof raw, sizeof raw, 0, NULL};
    batch.rows = 1;
    batch.messages = text;
    batch.signatures = signed_text;
    BAD(hg_verify_rows(engine, &batch, NULL, statuses), "there is no key");
    batch.key = public_key;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_VALID);
    BAD(hg_verify_rows(NULL, &batch, NULL, statuses), "engine: NULL");
    BAD(hg_verify_rows(engine, NULL, NULL, statuses), "batch: NULL");
    BAD(hg_verify_rows(engine, &batch, NULL, NULL), "statuses: NULL");
    BAD(hg_verify_rows(engine, &batch, NULL, signature), "statuses: it overlaps signatures");
    batch.reserved = 1;
    IS(HG_UNSUPPORTED, hg_verify_rows(engine, &batch, NULL, statuses), "reserved");
    batch.reserved = 0;
    batch.keys = encoded;
    BAD(hg_verify_rows(engine, &batch, NULL, statuses), "keys and set");
    batch.key = NULL;
    BAD(hg_verify_rows(engine, &batch, NULL, statuses), "no such set");
    batch.set = SET;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_VALID);
    BAD(hg_verify_rows(engine, &batch, NULL, raw), "statuses: it overlaps keys");
    batch.keys.width = 31;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_KEY_LENGTH);
    batch.keys = encoded;
    batch.set = HG_ZKDILITHIUM;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_KEY_LENGTH);
    batch.set = SET;
    batch.signatures.width = 5;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_SIGNATURE_LENGTH);
    batch.signatures = none;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_SIGNATURE_LENGTH);
    batch.signatures = signed_text;
    batch.messages.bytes = NULL;
    BAD(hg_verify_rows(engine, &batch, NULL, statuses), "messages: NULL");
    const int64_t offsets[] = {0, 3, 1, 9};
    batch.messages = text;
    batch.messages.offsets = (const int64_t *)((const char *)offsets + 1);
    BAD(hg_verify_rows(engine, &batch, NULL, statuses), "not aligned");
    batch.messages.offsets = offsets;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_VALID);
    batch.messages.offsets = offsets + 1;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_BAD_OFFSETS);
    batch.messages.offsets = offsets + 2;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_BAD_OFFSETS);
    batch.messages = text;
    batch.keys = none;
    batch.table = table;
    batch.table_length = 2;
    batch.key_index = index;
    BAD(hg_verify_rows(engine, &batch, NULL, statuses), "keys and set");
    batch.set = 0;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_VALID);
    batch.key_index = index + 1;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_NO_SUCH_KEY);
    batch.table_length = 3;
    BAD(hg_verify_rows(engine, &batch, NULL, statuses), "a key of the table: NULL");
    batch.table = NULL;
    batch.key = zk_public_key;
    OK(hg_verify_rows(engine, &batch, NULL, statuses));
    TRUE(statuses[0] == HG_ROW_SIGNATURE_LENGTH);
    batch.rows = 0;
    OK(hg_verify_rows(engine, &batch, NULL, NULL));
}

static void keygen_rows(void)
{
    uint8_t private_keys[2 * 64], again[2 * 64], public_keys[2 * 32], seeds[2 * 48];
    memset(seeds, 7, sizeof seeds);
    BAD(hg_keygen_rows(NULL, SET, 2, NULL, 0, private_keys, 128, public_keys, 64), "engine: NULL");
    BAD(hg_keygen_rows(engine, 9, 2, NULL, 0, private_keys, 128, public_keys, 64), "no such set");
    BAD(hg_keygen_rows(engine, SET, 2, NULL, 0, NULL, 128, public_keys, 64), "private_keys: NULL");
    BAD(hg_keygen_rows(engine, SET, 2, NULL, 0, private_keys, 128, NULL, 64), "public_keys: NULL");
    BAD(hg_keygen_rows(engine, SET, 2, NULL, 0, private_keys, 127, public_keys, 64), "128 bytes");
    BAD(hg_keygen_rows(engine, SET, 2, NULL, 0, private_keys, 128, public_keys, 65), "64 bytes");
    BAD(hg_keygen_rows(engine, SET, (size_t)-1, NULL, 0, private_keys, 128, public_keys, 64), "private_keys");
    BAD(hg_keygen_rows(engine, SET, 2, seeds, 95, private_keys, 128, public_keys, 64), "96 bytes");
    BAD(hg_keygen_rows(engine, SET, 2, NULL, 96, private_keys, 128, public_keys, 64), "seeds");
    BAD(hg_keygen_rows(engine, SET, 2, NULL, 0, private_keys, 128, private_keys + 64, 64), "overlaps private_keys");
    BAD(hg_keygen_rows(engine, SET, 2, private_keys, 96, private_keys, 128, public_keys, 64), "overlaps seeds");
    OK(hg_keygen_rows(engine, SET, 2, seeds, 96, private_keys, 128, public_keys, 64));
    OK(hg_keygen_rows(engine, SET, 2, seeds, 96, again, 128, public_keys, 64));
    TRUE(memcmp(private_keys, again, 128) == 0 && memcmp(private_keys + 32, public_keys, 32) == 0);
    OK(hg_keygen_rows(engine, SET, 2, NULL, 0, again, 128, public_keys, 64));
    TRUE(memcmp(private_keys + 32, public_keys, 32) != 0);
    OK(hg_keygen_rows(engine, SET, 0, NULL, 0, NULL, 0, NULL, 0));
    uint8_t zk_private[3936], zk_public[3104];
    OK(hg_keygen_rows(engine, HG_ZKDILITHIUM, 1, seeds, 32, zk_private, sizeof zk_private, zk_public, sizeof zk_public));
    hg_wipe(zk_private, sizeof zk_private);
}

static void sha256_rows(void)
{
    uint8_t sums[2 * 32], sum[32], statuses[3];
    hg_column column = {message, 9, 3, 4, NULL};
    BAD(hg_sha256_rows(NULL, &column, 2, sums, 64, statuses), "engine: NULL");
    BAD(hg_sha256_rows(engine, NULL, 2, sums, 64, statuses), "messages: NULL");
    BAD(hg_sha256_rows(engine, &column, 2, NULL, 64, statuses), "sums: NULL");
    BAD(hg_sha256_rows(engine, &column, 2, sums, 63, statuses), "sums");
    BAD(hg_sha256_rows(engine, &column, 2, sums, 64, NULL), "statuses: NULL");
    BAD(hg_sha256_rows(engine, &column, 2, sums, 64, sums), "overlaps sums");
    BAD(hg_sha256_rows(engine, &column, 3, sums, 64, statuses), "");
    OK(hg_sha256_rows(engine, &column, 2, sums, 64, statuses));
    OK(hg_sha256(engine, message + 4, 3, sum));
    TRUE(statuses[1] == HG_ROW_HASHED && memcmp(sum, sums + 32, 32) == 0);
}

static void memory(void)
{
    hg_memory *made = (hg_memory *)&failures;
    BAD(hg_memory_new(NULL, 5, &made), "engine: NULL");
    TRUE(made == NULL);
    BAD(hg_memory_new(engine, 5, NULL), "memory: NULL");
    /* More than there are addresses. */
    IS(HG_OUT_OF_MEMORY, hg_memory_new(engine, (size_t)1 << 50, &made), "the host gives no");
    OK(hg_memory_new(engine, SIGNATURE, &made));
    uint8_t *bytes = hg_memory_bytes(made);
    TRUE(bytes != NULL && hg_memory_length(made) == SIGNATURE && bytes[0] == 0 && bytes[SIGNATURE - 1] == 0);
    TRUE(hg_memory_is_reached(made) == 0);
    OK(hg_sign(engine, key, NULL, message, 3, bytes, SIGNATURE));
    OK(hg_verify(engine, public_key, NULL, message, 3, bytes, SIGNATURE));
    hg_memory_free(made);
    hg_memory_free(NULL);
    TRUE(hg_memory_bytes(NULL) == NULL && hg_memory_length(NULL) == 0 && hg_memory_is_reached(NULL) == 0);
}

static void *in_thread(void *argument)
{
    uint8_t *own = malloc(SIGNATURE), verdicts[1];
    hg_private_key *cached_key = NULL;
    hg_status status = hg_private_key_cache(engine, key, NULL, &cached_key);
    if (status == HG_OK)
        status = hg_sign(engine, cached_key, NULL, argument, 1, own, SIGNATURE);
    hg_private_key_free(cached_key);
    if (status == HG_OK)
        status = hg_verify(engine, public_key, NULL, argument, 1, own, SIGNATURE);
    hg_verify_batch batch = HG_VERIFY_BATCH_INIT;
    hg_column text = {argument, 1, 1, 1, NULL}, signed_text = {own, SIGNATURE, SIGNATURE, 0, NULL};
    batch.rows = 1;
    batch.key = public_key;
    batch.messages = text;
    batch.signatures = signed_text;
    if (status == HG_OK)
        status = hg_verify_rows(engine, &batch, NULL, verdicts);
    if (status == HG_OK && verdicts[0] != HG_ROW_VALID)
        status = HG_INVALID_SIGNATURE;
    if (status == HG_OK)
        status = hg_sign(engine, zk_key, NULL, argument, 1, own, ZK_SIGNATURE);
    /* A failure of this thread is not another's. */
    if (hg_error_text()[0] != '\0')
        status = HG_INTERNAL;
    free(own);
    return status == HG_OK ? NULL : argument;
}

static void threads(void)
{
    pthread_t all[4];
    char names[4] = "abc";
    pthread_attr_t attributes;
    TRUE(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
    for (int i = 0; i < 4; i++)
        TRUE(pthread_create(&all[i], &attributes, in_thread, &names[i]) == 0);
    pthread_attr_destroy(&attributes);
    for (int i = 0; i < 4; i++) {
        void *failed;
        TRUE(pthread_join(all[i], &failed) == 0 && failed == NULL);
    }
}

static void after_fork(void)
{
    pid_t child = fork();
    if (child == 0) {
        /* The parent's engine refuses, its keys are there, a new engine works. */
        hg_engine *own = NULL;
        hg_engine_options options = HG_ENGINE_OPTIONS_INIT;
        options.threads = 1;
        IS(HG_IO, hg_sign(engine, key, NULL, message, 3, signature, SIGNATURE), "make a new engine");
        OK(hg_engine_new(&options, &own));
        OK(hg_sign(own, key, NULL, message, 3, signature, SIGNATURE));
        OK(hg_verify(own, public_key, NULL, message, 3, signature, SIGNATURE));
        hg_engine_free(own);
        _exit(failures != 0);
    }
    int status = -1;
    TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(hg_sign(engine, key, NULL, message, 3, signature, SIGNATURE));
}

int main(int count, char **arguments)
{
    texts();
    sets();
    hg_engine_options options = HG_ENGINE_OPTIONS_INIT;
    const char *const devices[] = {"cpu:0"};
    options.devices = devices;
    options.device_count = 1;
    options.threads = 2;
    OK(hg_engine_new(&options, &engine));
    key = known_key(SET);
    zk_key = known_key(HG_ZKDILITHIUM);
    OK(hg_public_key_of(key, &public_key));
    OK(hg_public_key_of(zk_key, &zk_public_key));
    engines();
    keys();
    encrypted();
    forms(count > 1 ? arguments[1] : "vectors/pem/forms.tsv");
    messages();
    queued();
    work_options();
    cancelled_meanwhile();
    cached();
    sign_rows();
    verify_rows();
    keygen_rows();
    sha256_rows();
    memory();
    threads();
    after_fork();
    hg_public_key_free(zk_public_key);
    hg_public_key_free(public_key);
    hg_private_key_free(zk_key);
    hg_private_key_free(key);
    hg_engine_free(engine);
    if (failures == 0)
        puts("every function refuses bad input");
    return failures != 0;
}
