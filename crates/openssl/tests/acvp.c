/* NIST's ACVP cases of SLH-DSA through EVP, read from vectors/slh-dsa/acvp (its README describes the format).
 *
 *   acvp FOLDER VECTORS STEP   with hypergrove.so from FOLDER: each STEP-th case of all files
 */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/objects.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OURS "provider=hypergrove"

static OSSL_LIB_CTX *library;

struct bytes {
    const unsigned char *data;
    size_t length;
};

/* The columns of a case. */
enum { MOST = 12 };

struct file {
    unsigned char *data;
    size_t length, at;
    char *names[MOST];
    struct bytes values[MOST];
    size_t columns;
};

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static struct bytes string(struct file *file)
{
    struct bytes value;
    const unsigned char *at = file->data + file->at;

    if (file->length - file->at < 4)
        fail("a file is cut short");
    value.length = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
    value.data = at + 4;
    if (file->length - file->at - 4 < value.length)
        fail("a file is cut short");
    file->at += 4 + value.length;
    return value;
}

static struct file opened(const char *folder, const char *name)
{
    struct file file = { 0 };
    struct bytes names;
    char path[4096], *word;
    FILE *stream;

    snprintf(path, sizeof(path), "%s/%s.bin", folder, name);
    stream = fopen(path, "rb");
    if (stream == NULL || fseek(stream, 0, SEEK_END) != 0)
        fail(path);
    file.length = (size_t)ftell(stream);
    file.data = malloc(file.length);
    rewind(stream);
    if (fread(file.data, 1, file.length, stream) != file.length)
        fail(path);
    fclose(stream);
    names = string(&file);
    word = calloc(1, names.length + 1);
    memcpy(word, names.data, names.length);
    for (word = strtok(word, " "); word != NULL && file.columns < MOST; word = strtok(NULL, " "))
        file.names[file.columns++] = word;
    return file;
}

static int next(struct file *file)
{
    size_t i;

    if (file->at == file->length)
        return 0;
    for (i = 0; i < file->columns; i++)
        file->values[i] = string(file);
    return 1;
}

static struct bytes value(const struct file *file, const char *name)
{
    size_t i;

    for (i = 0; i < file->columns; i++)
        if (strcmp(file->names[i], name) == 0)
            return file->values[i];
    fail(name);
    return file->values[0];
}

static const char *text(const struct file *file, const char *name, char *room)
{
    struct bytes bytes = value(file, name);

    memcpy(room, bytes.data, bytes.length);
    room[bytes.length] = 0;
    return room;
}

static int is(struct bytes bytes, const unsigned char *data, size_t length)
{
    return bytes.length == length && memcmp(bytes.data, data, length) == 0;
}

static OSSL_PARAM octets(const char *name, struct bytes bytes)
{
    return OSSL_PARAM_construct_octet_string(name, (void *)bytes.data, bytes.length);
}

static EVP_PKEY *key_of(const char *set, const char *part, struct bytes bytes)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(library, set, OURS);
    OSSL_PARAM params[2] = { octets(part, bytes), OSSL_PARAM_construct_end() };
    EVP_PKEY *key = NULL;
    int selection = strcmp(part, "priv") == 0 ? EVP_PKEY_KEYPAIR : EVP_PKEY_PUBLIC_KEY;

    if (EVP_PKEY_fromdata_init(ctx) != 1 || EVP_PKEY_fromdata(ctx, &key, selection, params) != 1)
        fail(set);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

static size_t digest(const char *hash, struct bytes message, unsigned char *out)
{
    EVP_MD *function = EVP_MD_fetch(library, hash, NULL);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t length = strcmp(hash, "SHAKE-128") == 0 ? 32 : strcmp(hash, "SHAKE-256") == 0 ? 64 : 0;
    unsigned int fixed = 0;
    int ok = function != NULL && EVP_DigestInit_ex(ctx, function, NULL) == 1 && EVP_DigestUpdate(ctx, message.data, message.length) == 1;

    ok = ok && (length > 0 ? EVP_DigestFinalXOF(ctx, out, length) : EVP_DigestFinal_ex(ctx, out, &fixed)) == 1;
    if (!ok)
        fail(hash);
    EVP_MD_CTX_free(ctx);
    EVP_MD_free(function);
    return length > 0 ? length : fixed;
}

/* A message, and how it is signed: M' of a pre-hash case is made here (FIPS 205, Algorithm 23). */
struct input {
    struct bytes message;
    int raw;
    unsigned char room[2 + 255 + 16 + 64];
    OSSL_PARAM params[5];
    size_t count;
};

static int zero = 0, one = 1;

static void read_input(const struct file *file, struct input *input)
{
    char interface[32], hash[32];
    struct bytes context = value(file, "context");

    input->message = value(file, "message");
    input->count = 0;
    text(file, "interface", interface);
    input->raw = strcmp(interface, "pure") != 0;
    if (strcmp(interface, "preHash") == 0) {
        static const char *const NAMES[][3] = {
            { "SHA2-224", "SHA-224", "SHA224" }, { "SHA2-256", "SHA-256", "SHA256" }, { "SHA2-384", "SHA-384", "SHA384" },
            { "SHA2-512", "SHA-512", "SHA512" }, { "SHA2-512/224", "SHA-512/224", "SHA512-224" },
            { "SHA2-512/256", "SHA-512/256", "SHA512-256" }, { "SHA3-224", "SHA3-224", "SHA3-224" },
            { "SHA3-256", "SHA3-256", "SHA3-256" }, { "SHA3-384", "SHA3-384", "SHA3-384" }, { "SHA3-512", "SHA3-512", "SHA3-512" },
            { "SHAKE-128", "SHAKE-128", "SHAKE128" }, { "SHAKE-256", "SHAKE-256", "SHAKE256" },
        };
        unsigned char *at = input->room;
        size_t i;

        text(file, "hashAlg", hash);
        for (i = 0; i < 12 && strcmp(NAMES[i][0], hash) != 0; i++)
            ;
        if (i == 12)
            fail(hash);
        *at++ = 1;
        *at++ = (unsigned char)context.length;
        memcpy(at, context.data, context.length);
        at += context.length;
        if (i2d_ASN1_OBJECT(OBJ_nid2obj(OBJ_txt2nid(NAMES[i][2])), &at) <= 0)
            fail(hash);
        at += digest(NAMES[i][1], input->message, at);
        input->message.data = input->room;
        input->message.length = (size_t)(at - input->room);
    }
    if (input->raw)
        input->params[input->count++] = OSSL_PARAM_construct_int("message-encoding", &zero);
    else
        input->params[input->count++] = octets("context-string", context);
    input->params[input->count] = OSSL_PARAM_construct_end();
}

static void check_keygen(const struct file *file, const char *set)
{
    struct bytes a = value(file, "skSeed"), b = value(file, "skPrf"), c = value(file, "pkSeed");
    unsigned char seed[96], key_bytes[128];
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(library, set, OURS);
    EVP_PKEY *key = NULL;
    OSSL_PARAM params[2];
    size_t length = 0;

    memcpy(seed, a.data, a.length);
    memcpy(seed + a.length, b.data, b.length);
    memcpy(seed + a.length + b.length, c.data, c.length);
    params[0] = OSSL_PARAM_construct_octet_string("seed", seed, a.length + b.length + c.length);
    params[1] = OSSL_PARAM_construct_end();
    if (EVP_PKEY_keygen_init(ctx) != 1 || EVP_PKEY_CTX_set_params(ctx, params) != 1 || EVP_PKEY_generate(ctx, &key) != 1)
        fail(set);
    if (EVP_PKEY_get_octet_string_param(key, "priv", key_bytes, sizeof(key_bytes), &length) != 1
        || !is(value(file, "sk"), key_bytes, length))
        fail("another private key");
    if (EVP_PKEY_get_octet_string_param(key, "pub", key_bytes, sizeof(key_bytes), &length) != 1
        || !is(value(file, "pk"), key_bytes, length))
        fail("another public key");
    EVP_PKEY_free(key);
    EVP_PKEY_CTX_free(ctx);
}

static void check_siggen(const struct file *file, const char *set)
{
    EVP_PKEY *key = key_of(set, "priv", value(file, "sk"));
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    struct bytes randomness = value(file, "additionalRandomness"), made;
    struct input input;
    unsigned char sum[64];
    unsigned char *signature;
    size_t length = 0, sum_length;

    read_input(file, &input);
    if (randomness.length > 0)
        input.params[input.count++] = octets("test-entropy", randomness);
    else
        input.params[input.count++] = OSSL_PARAM_construct_int("deterministic", &one);
    input.params[input.count] = OSSL_PARAM_construct_end();
    if (EVP_DigestSignInit_ex(ctx, NULL, NULL, library, OURS, key, input.params) != 1
        || EVP_DigestSign(ctx, NULL, &length, input.message.data, input.message.length) != 1)
        fail(set);
    signature = malloc(length);
    if (EVP_DigestSign(ctx, signature, &length, input.message.data, input.message.length) != 1)
        fail(set);
    made.data = signature;
    made.length = length;
    sum_length = digest("SHA-256", made, sum);
    if (!is(value(file, "signatureSha256"), sum, sum_length))
        fail("another signature");
    free(signature);
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
}

static void check_sigver(const struct file *file, const char *set)
{
    EVP_PKEY *key = key_of(set, "pub", value(file, "pk"));
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    struct bytes signature = value(file, "signature");
    struct input input;
    char passed[8];
    int valid;

    read_input(file, &input);
    if (EVP_DigestVerifyInit_ex(ctx, NULL, NULL, library, OURS, key, input.params) != 1)
        fail(set);
    valid = EVP_DigestVerify(ctx, signature.data, signature.length, input.message.data, input.message.length) == 1;
    if (valid != (strcmp(text(file, "testPassed", passed), "true") == 0))
        fail("another verdict");
    ERR_clear_error();
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
}

int main(int count, char **words)
{
    static const struct { const char *name; void (*check)(const struct file *, const char *); } FILES[] = {
        { "keygen", check_keygen }, { "siggen", check_siggen }, { "sigver", check_sigver },
    };
    size_t i, number = 0, step, cases = 0;

    if (count != 4 || (step = (size_t)atol(words[3])) == 0)
        fail("usage: acvp FOLDER VECTORS STEP");
    library = OSSL_LIB_CTX_new();
    if (OSSL_PROVIDER_set_default_search_path(library, words[1]) != 1 || OSSL_PROVIDER_load(library, "hypergrove") == NULL
        || OSSL_PROVIDER_load(library, "default") == NULL)
        fail(words[1]);
    for (i = 0; i < 3; i++) {
        struct file file = opened(words[2], FILES[i].name);
        char set[32], id[16];
        size_t before = cases;

        while (next(&file)) {
            if (number++ % step != 0)
                continue;
            text(&file, "parameterSet", set);
            fprintf(stderr, "%s %s %s\n", FILES[i].name, set, text(&file, "tcId", id));
            FILES[i].check(&file, set);
            cases++;
        }
        if (cases == before)
            fail("a file without a case");
        free(file.data);
    }
    printf("%lu cases\n", (unsigned long)cases);
    return 0;
}
