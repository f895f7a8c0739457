/* The provider as programs use it, by EVP: keys, signatures, bad input, threads, forks, loading. `cargo xtask ci openssl` compiles this with the
 * headers of an OpenSSL and runs it with that OpenSSL.
 *
 *   evp FOLDER             all checks, with hypergrove.so from FOLDER
 *   evp FOLDER threads N   64 threads that sign and verify N times in all
 *   evp FOLDER load N      loads and unloads the provider N times
 */
#include <openssl/core_names.h>
#include <openssl/decoder.h>
#include <openssl/encoder.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OURS "provider=hypergrove"

static OSSL_LIB_CTX *library;
static const char *folder;

static void fail(const char *file, int line, const char *what, const char *about)
{
    fprintf(stderr, "%s:%d: %s (%s)\n", file, line, what, about);
    ERR_print_errors_fp(stderr);
    exit(1);
}

#define CHECK(about, condition) do { if (!(condition)) fail(__FILE__, __LINE__, #condition, about); } while (0)

/* An error in the queue is of this provider, and its sentence has these words. OpenSSL's own errors may be around it. */
static void check_error(int line, const char *about, const char *words)
{
    const char *data;
    unsigned long error;
    int flags, found = 0;

    while ((error = ERR_get_error_all(NULL, NULL, NULL, &data, &flags)) != 0) {
        if ((flags & ERR_TXT_STRING) == 0 || data == NULL)
            continue;
        if (strstr(data, "a fault of hypergrove") != NULL)
            fail(__FILE__, line, data, about);
        if (strstr(data, words) != NULL && ERR_reason_error_string(error) != NULL)
            found = 1;
    }
    if (!found) {
        fprintf(stderr, "no error says \"%s\"\n", words);
        fail(__FILE__, line, "check_error", about);
    }
}

#define CHECK_ERROR(about, words) check_error(__LINE__, about, words)
/* From 3.4 on, OpenSSL says itself that it signs no digests. */
#if OPENSSL_VERSION_NUMBER >= 0x30400000L
#define CHECK_DIGEST_ERROR() ERR_clear_error()
#else
#define CHECK_DIGEST_ERROR() check_error(__LINE__, "digest", "takes no digest, and this program hashes")
#endif

static const struct { const char *name; size_t n, signature; } SETS[] = {
    { "SLH-DSA-SHA2-128s", 16, 7856 }, { "SLH-DSA-SHA2-128f", 16, 17088 },
    { "SLH-DSA-SHA2-192s", 24, 16224 }, { "SLH-DSA-SHA2-192f", 24, 35664 },
    { "SLH-DSA-SHA2-256s", 32, 29792 }, { "SLH-DSA-SHA2-256f", 32, 49856 },
    { "SLH-DSA-SHAKE-128s", 16, 7856 }, { "SLH-DSA-SHAKE-128f", 16, 17088 },
    { "SLH-DSA-SHAKE-192s", 24, 16224 }, { "SLH-DSA-SHAKE-192f", 24, 35664 },
    { "SLH-DSA-SHAKE-256s", 32, 29792 }, { "SLH-DSA-SHAKE-256f", 32, 49856 },
    { "SLH-DSA-SHA2-128s-WITH-SHA256", 16, 7856 }, { "SLH-DSA-SHA2-128f-WITH-SHA256", 16, 17088 },
    { "SLH-DSA-SHA2-192s-WITH-SHA512", 24, 16224 }, { "SLH-DSA-SHA2-192f-WITH-SHA512", 24, 35664 },
    { "SLH-DSA-SHA2-256s-WITH-SHA512", 32, 29792 }, { "SLH-DSA-SHA2-256f-WITH-SHA512", 32, 49856 },
    { "SLH-DSA-SHAKE-128s-WITH-SHAKE128", 16, 7856 }, { "SLH-DSA-SHAKE-128f-WITH-SHAKE128", 16, 17088 },
    { "SLH-DSA-SHAKE-192s-WITH-SHAKE256", 24, 16224 }, { "SLH-DSA-SHAKE-192f-WITH-SHAKE256", 24, 35664 },
    { "SLH-DSA-SHAKE-256s-WITH-SHAKE256", 32, 29792 }, { "SLH-DSA-SHAKE-256f-WITH-SHAKE256", 32, 49856 },
};
#define SET_COUNT (sizeof(SETS) / sizeof(SETS[0]))
#define FAST "SLH-DSA-SHA2-128f"
#define HASHED "SLH-DSA-SHA2-128f-WITH-SHA256"

static EVP_PKEY *generate(const char *set, const OSSL_PARAM *params)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(library, set, OURS);
    EVP_PKEY *key = NULL;

    CHECK(set, ctx != NULL && EVP_PKEY_keygen_init(ctx) == 1);
    CHECK(set, params == NULL || EVP_PKEY_CTX_set_params(ctx, params) == 1);
    CHECK(set, EVP_PKEY_generate(ctx, &key) == 1);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

/* The choices of a signature. */
struct options {
    const unsigned char *context;
    size_t context_length;
    int deterministic, raw;
    const unsigned char *entropy;
    size_t entropy_length;
};

static const OSSL_PARAM *parameters(const struct options *options, OSSL_PARAM *room)
{
    static int zero = 0, one = 1;
    size_t i = 0;

    if (options->context != NULL)
        room[i++] = OSSL_PARAM_construct_octet_string("context-string", (void *)options->context, options->context_length);
    if (options->entropy != NULL)
        room[i++] = OSSL_PARAM_construct_octet_string("test-entropy", (void *)options->entropy, options->entropy_length);
    if (options->deterministic)
        room[i++] = OSSL_PARAM_construct_int("deterministic", &one);
    if (options->raw)
        room[i++] = OSSL_PARAM_construct_int("message-encoding", &zero);
    room[i] = OSSL_PARAM_construct_end();
    return room;
}

static EVP_MD_CTX *begin(EVP_PKEY *key, const struct options *options, int verifies)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    OSSL_PARAM room[5];
    const OSSL_PARAM *params = parameters(options, room);
    int ok = verifies ? EVP_DigestVerifyInit_ex(ctx, NULL, NULL, library, OURS, key, params)
                      : EVP_DigestSignInit_ex(ctx, NULL, NULL, library, OURS, key, params);

    if (ok == 1)
        return ctx;
    EVP_MD_CTX_free(ctx);
    return NULL;
}

static unsigned char *sign(EVP_PKEY *key, const struct options *options, const void *message, size_t length, size_t *signature_length)
{
    EVP_MD_CTX *ctx = begin(key, options, 0);
    unsigned char *signature;

    CHECK("sign", ctx != NULL);
    CHECK("sign", EVP_DigestSign(ctx, NULL, signature_length, message, length) == 1);
    signature = malloc(*signature_length);
    CHECK("sign", EVP_DigestSign(ctx, signature, signature_length, message, length) == 1);
    EVP_MD_CTX_free(ctx);
    return signature;
}

static int verify(EVP_PKEY *key, const struct options *options, const void *message, size_t length, const unsigned char *signature,
    size_t signature_length)
{
    EVP_MD_CTX *ctx = begin(key, options, 1);
    int valid;

    CHECK("verify", ctx != NULL);
    valid = EVP_DigestVerify(ctx, signature, signature_length, message, length);
    EVP_MD_CTX_free(ctx);
    return valid;
}

static const struct options NONE;

/* Without a structure, the private key is written and read where it is selected, and never the public key in its place. */
static void check_selection(const char *set, EVP_PKEY *key)
{
    OSSL_ENCODER_CTX *encoder = OSSL_ENCODER_CTX_new_for_pkey(key, EVP_PKEY_KEYPAIR, "PEM", NULL, OURS);
    OSSL_DECODER_CTX *decoder;
    EVP_PKEY *back = NULL;
    unsigned char *data = NULL;
    const unsigned char *rest;
    size_t length = 0;

    CHECK(set, OSSL_ENCODER_to_data(encoder, &data, &length) == 1);
    CHECK(set, strncmp((char *)data, "-----BEGIN PRIVATE KEY-----", 27) == 0);
    OSSL_ENCODER_CTX_free(encoder);
    OPENSSL_free(data);
    data = NULL;
    encoder = OSSL_ENCODER_CTX_new_for_pkey(key, EVP_PKEY_PUBLIC_KEY, "DER", NULL, OURS);
    CHECK(set, OSSL_ENCODER_to_data(encoder, &data, &length) == 1);
    OSSL_ENCODER_CTX_free(encoder);
    decoder = OSSL_DECODER_CTX_new_for_pkey(&back, "DER", NULL, set, EVP_PKEY_KEYPAIR, library, OURS);
    rest = data;
    CHECK(set, OSSL_DECODER_from_data(decoder, &rest, &length) != 1 && back == NULL);
    ERR_clear_error();
    OSSL_DECODER_CTX_free(decoder);
    OPENSSL_free(data);
}

/* A key goes through every structure and comes back. */
static void check_files(const char *set, EVP_PKEY *key)
{
    static const struct { const char *type, *structure; int selection; const char *cipher; } FORMS[] = {
        { "PEM", "PrivateKeyInfo", EVP_PKEY_KEYPAIR, NULL },
        { "DER", "PrivateKeyInfo", EVP_PKEY_KEYPAIR, NULL },
        { "PEM", "PrivateKeyInfo", EVP_PKEY_KEYPAIR, "AES-256-CBC" },
        { "DER", "EncryptedPrivateKeyInfo", EVP_PKEY_KEYPAIR, "AES-256-CBC" },
        { "PEM", "SubjectPublicKeyInfo", EVP_PKEY_PUBLIC_KEY, NULL },
        { "DER", "SubjectPublicKeyInfo", EVP_PKEY_PUBLIC_KEY, NULL },
    };
    const unsigned char *pass = (const unsigned char *)"correct horse";
    size_t i;

    for (i = 0; i < sizeof(FORMS) / sizeof(FORMS[0]); i++) {
        OSSL_ENCODER_CTX *encoder;
        OSSL_DECODER_CTX *decoder;
        EVP_PKEY *back = NULL;
        unsigned char *data = NULL;
        const unsigned char *rest;
        size_t length = 0, left;

        /* Deriving a key from a passphrase is slow on purpose: two sets do. */
        if (FORMS[i].cipher != NULL && strcmp(set, FAST) != 0 && strcmp(set, HASHED) != 0)
            continue;
        encoder = OSSL_ENCODER_CTX_new_for_pkey(key, FORMS[i].selection, FORMS[i].type, FORMS[i].structure, OURS);
        if (FORMS[i].cipher != NULL) {
            CHECK(set, OSSL_ENCODER_CTX_set_cipher(encoder, FORMS[i].cipher, NULL) == 1);
            CHECK(set, OSSL_ENCODER_CTX_set_passphrase(encoder, pass, strlen((const char *)pass)) == 1);
        }
        CHECK(set, OSSL_ENCODER_to_data(encoder, &data, &length) == 1);
        OSSL_ENCODER_CTX_free(encoder);
        /* No property: whoever can decrypt does, and whoever knows the key reads it. */
        decoder = OSSL_DECODER_CTX_new_for_pkey(&back, FORMS[i].type, NULL, NULL, 0, library, NULL);
        if (FORMS[i].cipher != NULL)
            CHECK(set, OSSL_DECODER_CTX_set_passphrase(decoder, pass, strlen((const char *)pass)) == 1);
        rest = data;
        left = length;
        CHECK(set, OSSL_DECODER_from_data(decoder, &rest, &left) == 1);
        CHECK(set, left == 0 && EVP_PKEY_is_a(back, set) == 1 && EVP_PKEY_eq(key, back) == 1);
        OSSL_DECODER_CTX_free(decoder);
        EVP_PKEY_free(back);

        /* A damaged length, and an input that ends early, are errors. */
        if (strcmp(FORMS[i].type, "DER") == 0 && FORMS[i].cipher == NULL) {
            back = NULL;
            decoder = OSSL_DECODER_CTX_new_for_pkey(&back, "DER", NULL, NULL, 0, library, OURS);
            rest = data;
            left = length - 1;
            CHECK(set, OSSL_DECODER_from_data(decoder, &rest, &left) != 1 && back == NULL);
            ERR_clear_error();
            if (FORMS[i].selection == EVP_PKEY_KEYPAIR) {
                unsigned char *version = data + (data[1] < 0x80 ? 4 : 5);

                *version = 2;
                rest = data;
                left = length;
                CHECK(set, OSSL_DECODER_from_data(decoder, &rest, &left) != 1 && back == NULL);
                CHECK_ERROR(set, "`version` is 2");
                *version = 0;
                data[length - 1] ^= 1;
                rest = data;
                left = length;
                CHECK(set, OSSL_DECODER_from_data(decoder, &rest, &left) != 1 && back == NULL);
                CHECK_ERROR(set, "damaged");
                data[length - 1] ^= 1;
            }
            data[length - (FORMS[i].selection == EVP_PKEY_KEYPAIR ? EVP_PKEY_get_bits(key) / 4 + 1 : EVP_PKEY_get_bits(key) / 8 + 2)] ^= 1;
            rest = data;
            left = length;
            CHECK(set, OSSL_DECODER_from_data(decoder, &rest, &left) != 1 && back == NULL);
            ERR_clear_error();
            OSSL_DECODER_CTX_free(decoder);
        }
        OPENSSL_free(data);
    }
}

static void check_key(const char *set, size_t n, size_t signature_bytes, EVP_PKEY *key)
{
    unsigned char private[128], public[64], seed[96];
    size_t length = 0;
    OSSL_PARAM params[3];
    EVP_PKEY_CTX *ctx;
    EVP_PKEY *other = NULL, *again;
    BIO *text = BIO_new(BIO_s_mem());
    char *printed;
    long printed_length;

    CHECK(set, EVP_PKEY_get_security_bits(key) == (int)(8 * n) && EVP_PKEY_get_size(key) == (int)signature_bytes);
    CHECK(set, EVP_PKEY_get_octet_string_param(key, "priv", private, sizeof(private), &length) == 1 && length == 4 * n);
    CHECK(set, EVP_PKEY_get_octet_string_param(key, "pub", public, sizeof(public), &length) == 1 && length == 2 * n);
    CHECK(set, memcmp(private + 2 * n, public, 2 * n) == 0);

    /* From its parts, and with parts that do not belong together. */
    ctx = EVP_PKEY_CTX_new_from_name(library, set, OURS);
    params[0] = OSSL_PARAM_construct_octet_string("priv", private, 4 * n);
    params[1] = OSSL_PARAM_construct_octet_string("pub", public, 2 * n);
    params[2] = OSSL_PARAM_construct_end();
    CHECK(set, EVP_PKEY_fromdata_init(ctx) == 1 && EVP_PKEY_fromdata(ctx, &other, EVP_PKEY_KEYPAIR, params) == 1);
    CHECK(set, EVP_PKEY_eq(key, other) == 1);
    EVP_PKEY_free(other);
    other = NULL;
    public[0] ^= 1;
    CHECK(set, EVP_PKEY_fromdata(ctx, &other, EVP_PKEY_KEYPAIR, params) != 1);
    CHECK_ERROR(set, "does not belong to the private key");
    public[0] ^= 1;
    /* The seeds of another key. */
    private[0] ^= 1;
    CHECK(set, EVP_PKEY_fromdata(ctx, &other, EVP_PKEY_KEYPAIR, params) != 1);
    CHECK_ERROR(set, "damaged");
    private[0] ^= 1;
    /* The secret half alone, with the public key. */
    params[0] = OSSL_PARAM_construct_octet_string("priv", private, 2 * n);
    CHECK(set, EVP_PKEY_fromdata(ctx, &other, EVP_PKEY_KEYPAIR, params) == 1 && EVP_PKEY_eq(key, other) == 1);
    EVP_PKEY_free(other);
    other = NULL;
    params[0] = OSSL_PARAM_construct_octet_string("pub", public, 2 * n - 1);
    params[1] = OSSL_PARAM_construct_end();
    CHECK(set, EVP_PKEY_fromdata(ctx, &other, EVP_PKEY_PUBLIC_KEY, params) != 1);
    CHECK_ERROR(set, "bytes");
    EVP_PKEY_CTX_free(ctx);

    again = EVP_PKEY_dup(key);
    CHECK(set, again != NULL && EVP_PKEY_eq(key, again) == 1);
    EVP_PKEY_free(again);

    /* The same seeds make the same key. */
    memset(seed, 3, sizeof(seed));
    params[0] = OSSL_PARAM_construct_octet_string("seed", seed, 3 * n);
    params[1] = OSSL_PARAM_construct_end();
    other = generate(set, params);
    again = generate(set, params);
    CHECK(set, EVP_PKEY_eq(other, again) == 1 && EVP_PKEY_eq(other, key) == 0);
    EVP_PKEY_free(other);
    EVP_PKEY_free(again);

    CHECK(set, EVP_PKEY_print_private(text, key, 0, NULL) == 1);
    printed_length = BIO_get_mem_data(text, &printed);
    CHECK(set, printed_length > 0 && strncmp(printed, set, strlen(set)) == 0);
    BIO_free(text);
}

static void check_signatures(const char *set, size_t signature_bytes, EVP_PKEY *key)
{
    static const size_t CONTEXTS[] = { 0, 16, 255 };
    unsigned char context[256], message[300];
    size_t i, length, other_length;

    for (i = 0; i < sizeof(context); i++)
        context[i] = (unsigned char)(i * 7);
    for (i = 0; i < sizeof(message); i++)
        message[i] = (unsigned char)(i * 13);
    for (i = 0; i < 3; i++) {
        struct options options = { context, CONTEXTS[i], 1, 0, NULL, 0 };
        unsigned char *signature = sign(key, &options, message, sizeof(message), &length), *other;
        EVP_MD_CTX *parts, *copy;

        CHECK(set, length == signature_bytes);
        CHECK(set, verify(key, &options, message, sizeof(message), signature, length) == 1);
        CHECK(set, verify(key, &options, message, sizeof(message) - 1, signature, length) == 0);
        if (CONTEXTS[i] > 0)
            CHECK(set, verify(key, &NONE, message, sizeof(message), signature, length) == 0);
        signature[100] ^= 1;
        CHECK(set, verify(key, &options, message, sizeof(message), signature, length) == 0);
        signature[100] ^= 1;
        CHECK(set, verify(key, &options, message, sizeof(message), signature, length - 1) != 1);
        CHECK_ERROR(set, "are given");
        /* In parts, with a copy made in the middle, the signature is the same. */
        if (i == 1) {
            parts = begin(key, &options, 0);
            CHECK(set, EVP_DigestSignUpdate(parts, message, 100) == 1);
            copy = EVP_MD_CTX_new();
            CHECK(set, EVP_MD_CTX_copy_ex(copy, parts) == 1);
            CHECK(set, EVP_DigestSignUpdate(copy, message + 100, sizeof(message) - 100) == 1);
            other = malloc(length);
            other_length = length;
            CHECK(set, EVP_DigestSignFinal(copy, other, &other_length) == 1);
            CHECK(set, other_length == length && memcmp(signature, other, length) == 0);
            free(other);
            EVP_MD_CTX_free(copy);
            EVP_MD_CTX_free(parts);
            parts = begin(key, &options, 1);
            CHECK(set, EVP_DigestVerifyUpdate(parts, message, sizeof(message)) == 1);
            CHECK(set, EVP_DigestVerifyFinal(parts, signature, length) == 1);
            EVP_MD_CTX_free(parts);
        }
        free(signature);
    }
}

/* Fresh randomness makes another signature; given randomness makes the same one; M' may be given. */
static void check_choices(void)
{
    EVP_PKEY *key = generate(FAST, NULL);
    unsigned char entropy[16] = { 9 }, message[] = { 0, 0, 'm' };
    struct options given = { NULL, 0, 0, 0, entropy, sizeof(entropy) }, raw = { NULL, 0, 1, 1, NULL, 0 };
    struct options deterministic = { NULL, 0, 1, 0, NULL, 0 };
    size_t length;
    unsigned char *a = sign(key, &NONE, message, 3, &length), *b = sign(key, &NONE, message, 3, &length);

    CHECK("hedged", memcmp(a, b, length) != 0);
    free(a);
    free(b);
    a = sign(key, &given, message, 3, &length);
    b = sign(key, &given, message, 3, &length);
    CHECK("test-entropy", memcmp(a, b, length) == 0 && verify(key, &NONE, message, 3, a, length) == 1);
    free(a);
    free(b);
    /* M' of an empty context is 0, 0 and the message (FIPS 205, Algorithm 22). */
    a = sign(key, &raw, message, 3, &length);
    b = sign(key, &deterministic, message + 2, 1, &length);
    CHECK("message-encoding", memcmp(a, b, length) == 0);
    CHECK("message-encoding", verify(key, &raw, message, 3, b, length) == 1);
    free(a);
    free(b);
    EVP_PKEY_free(key);
}

/* Programs that hash a message themselves would sign its digest as if that were the message: each way to begin so is refused. */
static void check_digests(EVP_PKEY *key)
{
    static const char *const NAMES[] = { "MD5", "SHA1", "SHA256" };
    unsigned char signature[17088] = { 0 };
    EVP_PKEY_CTX *pkey = EVP_PKEY_CTX_new_from_pkey(library, key, OURS);
    size_t i;

    CHECK("digest", EVP_PKEY_sign_init(pkey) != 1);
    CHECK_DIGEST_ERROR();
    CHECK("digest", EVP_PKEY_verify_init(pkey) != 1);
    CHECK_DIGEST_ERROR();
    EVP_PKEY_CTX_free(pkey);
    for (i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        EVP_MD *md = EVP_MD_fetch(library, NAMES[i], NULL);
        EVP_MD_CTX *ctx = EVP_MD_CTX_new(), *begun = begin(key, &NONE, 0);
        unsigned int made = sizeof(signature);

        CHECK("digest", EVP_PKEY_CTX_set_signature_md(EVP_MD_CTX_get_pkey_ctx(begun), md) != 1);
        CHECK_ERROR("digest", "takes no digest");
        CHECK("digest", EVP_SignInit_ex(ctx, md, NULL) == 1 && EVP_SignUpdate(ctx, "message", 7) == 1);
        CHECK("digest", EVP_SignFinal_ex(ctx, signature, &made, key, library, OURS) != 1);
        CHECK_DIGEST_ERROR();
        CHECK("digest", EVP_VerifyFinal_ex(ctx, signature, sizeof(signature), key, library, OURS) != 1);
        CHECK_DIGEST_ERROR();
        EVP_MD_CTX_free(begun);
        EVP_MD_CTX_free(ctx);
        EVP_MD_free(md);
    }
}

static void check_bad_input(void)
{
    EVP_PKEY *key = generate(FAST, NULL), *hashed = generate(HASHED, NULL), *public = NULL;
    unsigned char long_context[256] = { 0 }, few[15] = { 0 }, bytes[64], small[100];
    struct options too_long = { long_context, 256, 0, 0, NULL, 0 }, short_entropy = { NULL, 0, 0, 0, few, 15 };
    struct options raw = { NULL, 0, 0, 1, NULL, 0 };
    OSSL_PARAM params[2];
    EVP_PKEY_CTX *pkey;
    EVP_MD_CTX *ctx;
    OSSL_ENCODER_CTX *encoder;
    unsigned char *data = NULL;
    size_t length = sizeof(bytes);
    int seven = 7;

    CHECK("context", begin(key, &too_long, 0) == NULL);
    CHECK_ERROR("context", "at most 255 bytes; 256 are given");
    CHECK("entropy", begin(key, &short_entropy, 0) == NULL);
    CHECK_ERROR("entropy", "16 bytes; 15 are given");
    CHECK("raw", begin(hashed, &raw, 0) == NULL);
    CHECK_ERROR("raw", "does not take");

    ctx = EVP_MD_CTX_new();
    CHECK("digest", EVP_DigestSignInit_ex(ctx, NULL, "SHA256", library, OURS, key, NULL) != 1);
    CHECK_ERROR("digest", "takes no digest");
    EVP_MD_CTX_free(ctx);

    check_digests(key);
    check_digests(hashed);

    ctx = begin(key, &NONE, 0);
    pkey = EVP_MD_CTX_get_pkey_ctx(ctx);
    params[0] = OSSL_PARAM_construct_int("message-encoding", &seven);
    params[1] = OSSL_PARAM_construct_end();
    CHECK("encoding", EVP_PKEY_CTX_set_params(pkey, params) != 1);
    CHECK_ERROR("encoding", "message-encoding 7 means nothing");
    params[0] = OSSL_PARAM_construct_octet_string("deterministic", bytes, 3);
    CHECK("type", EVP_PKEY_CTX_set_params(pkey, params) != 1);
    CHECK_ERROR("type", "deterministic is not a number");
    length = sizeof(small);
    CHECK("room", EVP_DigestSign(ctx, small, &length, bytes, 1) != 1);
    CHECK_ERROR("room", "has 100 bytes; give it 17088");
    EVP_MD_CTX_free(ctx);

    /* A public key does not sign. */
    length = sizeof(bytes);
    CHECK("public", EVP_PKEY_get_octet_string_param(key, "pub", bytes, sizeof(bytes), &length) == 1);
    pkey = EVP_PKEY_CTX_new_from_name(library, FAST, OURS);
    params[0] = OSSL_PARAM_construct_octet_string("pub", bytes, length);
    CHECK("public", EVP_PKEY_fromdata_init(pkey) == 1);
    CHECK("public", EVP_PKEY_fromdata(pkey, &public, EVP_PKEY_PUBLIC_KEY, params) == 1);
    EVP_PKEY_CTX_free(pkey);
    ctx = begin(public, &NONE, 0);
    CHECK("public", ctx != NULL);
    length = 17088;
    data = malloc(length);
    CHECK("public", EVP_DigestSign(ctx, data, &length, bytes, 1) != 1);
    CHECK_ERROR("public", "sign with the private key");
    EVP_MD_CTX_free(ctx);

    /* Parts and a whole message do not mix. */
    length = 17088;
    ctx = begin(key, &NONE, 0);
    CHECK("parts", EVP_DigestSignUpdate(ctx, bytes, 3) == 1);
    CHECK("parts", EVP_DigestSign(ctx, data, &length, bytes, 1) != 1);
    CHECK_ERROR("parts", "begin again");
    EVP_MD_CTX_free(ctx);
    free(data);
    data = NULL;

    /* A cipher that is not written, and a seed of another length. */
    encoder = OSSL_ENCODER_CTX_new_for_pkey(key, EVP_PKEY_KEYPAIR, "PEM", "PrivateKeyInfo", OURS);
    CHECK("cipher", OSSL_ENCODER_CTX_set_cipher(encoder, "AES-128-CBC", NULL) == 1);
    CHECK("cipher", OSSL_ENCODER_CTX_set_passphrase(encoder, bytes, 3) == 1);
    length = 0;
    CHECK("cipher", OSSL_ENCODER_to_data(encoder, &data, &length) != 1);
    CHECK_ERROR("cipher", "aes-256-cbc alone");
    OSSL_ENCODER_CTX_free(encoder);
    pkey = EVP_PKEY_CTX_new_from_name(library, FAST, OURS);
    params[0] = OSSL_PARAM_construct_octet_string("seed", bytes, 47);
    CHECK("seed", EVP_PKEY_keygen_init(pkey) == 1 && EVP_PKEY_CTX_set_params(pkey, params) != 1);
    CHECK_ERROR("seed", "48 bytes; 47 are given");
    EVP_PKEY_CTX_free(pkey);

    EVP_PKEY_free(public);
    EVP_PKEY_free(hashed);
    EVP_PKEY_free(key);
}

/* A key is freed while a signature with it is in progress. */
static void check_freed_key(void)
{
    EVP_PKEY *key = generate(FAST, NULL);
    EVP_MD_CTX *ctx = begin(key, &NONE, 0);
    unsigned char signature[17088];
    size_t length = sizeof(signature);

    EVP_PKEY_free(key);
    CHECK("freed", EVP_DigestSign(ctx, signature, &length, signature, 10) == 1);
    EVP_MD_CTX_free(ctx);
}

static EVP_PKEY *shared_key;
static long turns;

static void *sign_and_verify(void *number)
{
    unsigned char message[8] = { 0 };
    struct options options = { message, 1, 0, 0, NULL, 0 };
    long i;

    message[0] = (unsigned char)(size_t)number;
    for (i = 0; i < turns; i++) {
        size_t length;
        unsigned char *signature;

        message[1] = (unsigned char)i;
        signature = sign(shared_key, &options, message, sizeof(message), &length);
        CHECK("threads", verify(shared_key, &options, message, sizeof(message), signature, length) == 1);
        message[2] ^= 1;
        CHECK("threads", verify(shared_key, &options, message, sizeof(message), signature, length) == 0);
        message[2] ^= 1;
        free(signature);
    }
    return NULL;
}

static void check_threads(long total)
{
    pthread_t threads[64];
    size_t i;

    shared_key = generate(FAST, NULL);
    turns = (total + 63) / 64;
    for (i = 0; i < 64; i++)
        CHECK("threads", pthread_create(&threads[i], NULL, sign_and_verify, (void *)i) == 0);
    for (i = 0; i < 64; i++)
        CHECK("threads", pthread_join(threads[i], NULL) == 0);
    EVP_PKEY_free(shared_key);
}

/* Children are in a new PID namespace; and in a new user namespace, where everybody may make both. */
enum { NEW_PID = 0x20000000, NEW_USER = 0x10000000, CANNOT = 77 };

/* A child signs with an engine of its own, while its parent's threads sign. */
static void check_fork(void)
{
    pthread_t thread;
    int status = -1;
    pid_t child;

    shared_key = generate(FAST, NULL);
    turns = 30;
    CHECK("fork", pthread_create(&thread, NULL, sign_and_verify, NULL) == 0);
    child = fork();
    if (child == 0) {
        alarm(60);
        turns = 3;
        sign_and_verify(NULL);
        _exit(0);
    }
    CHECK("fork", child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK("fork", pthread_join(thread, NULL) == 0);
    sign_and_verify(NULL);
    EVP_PKEY_free(shared_key);
}

/* Signs in a child, which ends within a minute or is ended. Gives its status. */
static int sign_in_child(int namespaces, void (*then)(void))
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        alarm(60);
        if (namespaces) {
            sign_and_verify(NULL);
            if (syscall(SYS_unshare, NEW_PID) != 0 && syscall(SYS_unshare, NEW_USER | NEW_PID) != 0)
                _exit(CANNOT);
            then();
        } else {
            CHECK("its parent's number", getpid() == 1);
            sign_and_verify(NULL);
        }
        _exit(0);
    }
    CHECK("fork", child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static void sign_as_second(void)
{
    CHECK("the first process of the next namespace", sign_in_child(0, NULL) == 0);
}

static void sign_as_first(void)
{
    CHECK("the first process of a namespace", sign_in_child(1, sign_as_second) == 0);
}

/* A child has its parent's number, where the first process of a PID namespace forks into another. */
static void check_fork_with_number(void)
{
    int status;

    shared_key = generate(FAST, NULL);
    turns = 3;
    status = sign_in_child(1, sign_as_first);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
        printf("skipped: a child with its parent's number: this user may make no PID namespace\n");
    else
        CHECK("fork into namespaces", status == 0);
    EVP_PKEY_free(shared_key);
}

static void check_loading(long times)
{
    long i;

    for (i = 0; i < times; i++) {
        OSSL_LIB_CTX *own = OSSL_LIB_CTX_new();
        OSSL_PROVIDER *provider;
        EVP_PKEY_CTX *ctx;

        CHECK("load", OSSL_PROVIDER_set_default_search_path(own, folder) == 1);
        provider = OSSL_PROVIDER_load(own, "hypergrove");
        CHECK("load", provider != NULL);
        ctx = EVP_PKEY_CTX_new_from_name(own, FAST, OURS);
        CHECK("load", ctx != NULL);
        /* Now and then a key is made as well. */
        if (i % 100 == 0) {
            EVP_PKEY *key = NULL;

            CHECK("load", EVP_PKEY_keygen_init(ctx) == 1 && EVP_PKEY_generate(ctx, &key) == 1);
            EVP_PKEY_free(key);
        }
        EVP_PKEY_CTX_free(ctx);
        CHECK("load", OSSL_PROVIDER_unload(provider) == 1);
        OSSL_LIB_CTX_free(own);
    }
}

/* Threads that load the provider at the same time, each into a library of its own. */
static void *load_once(void *unused)
{
    (void)unused;
    check_loading(1);
    return NULL;
}

static void check_loading_by_threads(void)
{
    pthread_t threads[8];
    size_t i;

    for (i = 0; i < 8; i++)
        CHECK("load", pthread_create(&threads[i], NULL, load_once, NULL) == 0);
    for (i = 0; i < 8; i++)
        CHECK("load", pthread_join(threads[i], NULL) == 0);
}

/* The numbers of a key may be asked for in any width that holds them. */
static void check_widths(void)
{
    EVP_PKEY *key = generate(FAST, NULL);
    unsigned char room[16];
    size_t size;

    for (size = 1; size <= sizeof(room); size++) {
        OSSL_PARAM params[2] = { { "security-bits", OSSL_PARAM_UNSIGNED_INTEGER, room, size, 0 }, OSSL_PARAM_construct_end() };

        memset(room, 0xff, sizeof(room));
        CHECK("widths", EVP_PKEY_get_params(key, params) == 1 && params[0].return_size == size);
        CHECK("widths", room[0] == 128 && (size == 1 || room[size - 1] == 0));
        params[0].data_type = OSSL_PARAM_INTEGER;
        CHECK("widths", (EVP_PKEY_get_params(key, params) == 1) == (size > 1));
        ERR_clear_error();
    }
    EVP_PKEY_free(key);
}

#if OPENSSL_VERSION_NUMBER >= 0x30400000L
/* The functions for messages, of OpenSSL 3.4 and newer. */
static void check_messages(void)
{
    EVP_PKEY *key = generate(FAST, NULL);
    EVP_SIGNATURE *algorithm = EVP_SIGNATURE_fetch(library, FAST, OURS);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(library, key, OURS);
    unsigned char signature[17088];
    size_t length = sizeof(signature);

    CHECK("messages", EVP_PKEY_sign_init(ctx) != 1);
    ERR_clear_error();
    CHECK("messages", EVP_PKEY_sign_message_init(ctx, algorithm, NULL) == 1);
    CHECK("messages", EVP_PKEY_sign_message_update(ctx, (unsigned char *)"Dear ", 5) == 1);
    CHECK("messages", EVP_PKEY_sign_message_update(ctx, (unsigned char *)"reader", 6) == 1);
    CHECK("messages", EVP_PKEY_sign_message_final(ctx, signature, &length) == 1);
    CHECK("messages", verify(key, &NONE, "Dear reader", 11, signature, length) == 1);
    CHECK("messages", EVP_PKEY_verify_message_init(ctx, algorithm, NULL) == 1);
    CHECK("messages", EVP_PKEY_CTX_set_signature(ctx, signature, length) == 1);
    CHECK("messages", EVP_PKEY_verify_message_update(ctx, (unsigned char *)"Dear reader", 11) == 1);
    CHECK("messages", EVP_PKEY_verify_message_final(ctx) == 1);
    CHECK("messages", EVP_PKEY_verify_message_init(ctx, algorithm, NULL) == 1);
    CHECK("messages", EVP_PKEY_CTX_set_signature(ctx, signature, length) == 1);
    CHECK("messages", EVP_PKEY_verify_message_update(ctx, (unsigned char *)"Dear writer", 11) == 1);
    CHECK("messages", EVP_PKEY_verify_message_final(ctx) != 1);
    EVP_PKEY_CTX_free(ctx);
    EVP_SIGNATURE_free(algorithm);
    EVP_PKEY_free(key);
}
#endif

int main(int count, char **words)
{
    OSSL_PROVIDER *own, *usual;
    size_t i;

    CHECK("usage: evp FOLDER [threads N | load N]", count == 2 || count == 4);
    folder = words[1];
    library = OSSL_LIB_CTX_new();
    CHECK(folder, OSSL_PROVIDER_set_default_search_path(library, folder) == 1);
    own = OSSL_PROVIDER_load(library, "hypergrove");
    usual = OSSL_PROVIDER_load(library, "default");
    CHECK(folder, own != NULL && usual != NULL);
    if (count == 4 && strcmp(words[2], "threads") == 0) {
        check_threads(atol(words[3]));
    } else if (count == 4 && strcmp(words[2], "load") == 0) {
        check_loading(atol(words[3]));
    } else {
        for (i = 0; i < SET_COUNT; i++) {
            EVP_PKEY *key = generate(SETS[i].name, NULL);

            check_key(SETS[i].name, SETS[i].n, SETS[i].signature, key);
            check_files(SETS[i].name, key);
            check_selection(SETS[i].name, key);
            check_signatures(SETS[i].name, SETS[i].signature, key);
            EVP_PKEY_free(key);
        }
        check_choices();
        check_bad_input();
        check_freed_key();
        check_threads(128);
        check_fork();
        check_fork_with_number();
        check_loading(20);
        check_loading_by_threads();
        check_widths();
#if OPENSSL_VERSION_NUMBER >= 0x30400000L
        check_messages();
#endif
    }
    CHECK("unload", OSSL_PROVIDER_unload(own) == 1 && OSSL_PROVIDER_unload(usual) == 1);
    OSSL_LIB_CTX_free(library);
    printf("all is well\n");
    return 0;
}
