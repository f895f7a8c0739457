/* Rates of single calls by EVP, of this provider and of OpenSSL's own, in turns: one JSON object a line.
 *
 *   rate FOLDER SET OPERATION THREADS SECONDS TURNS PROVIDER…
 *
 * The configuration is that of OPENSSL_CONF, if it is set. OPERATION is sign, verify or keygen; PROVIDER is hypergrove or default. Each signature that is made or checked is verified once.
 */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static OSSL_LIB_CTX *library;
static const char *set, *operation;
static char property[64];
static double limit;
static EVP_PKEY *key;
static unsigned char message[64], *known;
static size_t known_length;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static EVP_PKEY *generate(void)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(library, set, property);
    EVP_PKEY *made = NULL;

    if (ctx == NULL || EVP_PKEY_keygen_init(ctx) != 1 || EVP_PKEY_generate(ctx, &made) != 1)
        fail("keygen");
    EVP_PKEY_CTX_free(ctx);
    return made;
}

static void sign(unsigned char *signature, size_t *length)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (EVP_DigestSignInit_ex(ctx, NULL, NULL, library, property, key, NULL) != 1
        || EVP_DigestSign(ctx, signature, length, message, sizeof(message)) != 1)
        fail("sign");
    EVP_MD_CTX_free(ctx);
}

static void verify(const unsigned char *signature, size_t length)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (EVP_DigestVerifyInit_ex(ctx, NULL, NULL, library, property, key, NULL) != 1
        || EVP_DigestVerify(ctx, signature, length, message, sizeof(message)) != 1)
        fail("verify");
    EVP_MD_CTX_free(ctx);
}

/* Works until the time is over, and returns the number of operations. */
static void *work(void *count)
{
    unsigned char *signature = malloc(known_length);
    size_t done = 0, length;
    double begin = now();

    do {
        length = known_length;
        if (strcmp(operation, "sign") == 0)
            sign(signature, &length);
        else if (strcmp(operation, "verify") == 0)
            verify(known, known_length);
        else
            EVP_PKEY_free(generate());
        done++;
    } while (now() - begin < limit);
    if (strcmp(operation, "sign") == 0)
        verify(signature, length);
    free(signature);
    *(size_t *)count = done;
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[256];
    size_t counts[256];
    int i, turn, number;

    if (argc < 8)
        fail("usage: rate FOLDER SET OPERATION THREADS SECONDS TURNS PROVIDER...");
    set = argv[2];
    operation = argv[3];
    number = atoi(argv[4]);
    limit = atof(argv[5]);
    library = OSSL_LIB_CTX_new();
    if (OSSL_PROVIDER_set_default_search_path(library, argv[1]) != 1
        || (getenv("OPENSSL_CONF") != NULL && OSSL_LIB_CTX_load_config(library, getenv("OPENSSL_CONF")) != 1) || OSSL_PROVIDER_load(library, "hypergrove") == NULL
        || OSSL_PROVIDER_load(library, "default") == NULL || number < 1 || number > 256)
        fail(argv[1]);
    for (turn = 0; turn < atoi(argv[6]); turn++) {
        for (i = 7; i < argc; i++) {
            double begin, seconds;
            size_t all = 0;
            int thread;

            snprintf(property, sizeof(property), "provider=%s", argv[i]);
            key = generate();
            known_length = (size_t)EVP_PKEY_get_size(key);
            known = malloc(known_length);
            sign(known, &known_length);
            verify(known, known_length);
            begin = now();
            for (thread = 0; thread < number; thread++)
                if (pthread_create(&threads[thread], NULL, work, &counts[thread]) != 0)
                    fail("threads");
            for (thread = 0; thread < number; thread++) {
                pthread_join(threads[thread], NULL);
                all += counts[thread];
            }
            seconds = now() - begin;
            printf("{\"provider\":\"%s\",\"set\":\"%s\",\"operation\":\"%s\",\"threads\":%d,\"turn\":%d,\"operations\":%zu,\"seconds\":%.6f}\n",
                argv[i], set, operation, number, turn, all, seconds);
            fflush(stdout);
            EVP_PKEY_free(key);
            free(known);
        }
    }
    return 0;
}
