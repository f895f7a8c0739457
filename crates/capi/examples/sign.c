/* One signature: makes a key, signs, and verifies as somebody else would, with the public key's PEM alone. */
#include <hypergrove.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(hg_status status, const char *what)
{
    if (status != HG_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, hg_status_text(status), hg_error_text());
        exit(2);
    }
}

int main(void)
{
    static const char message[] = "Dear reader";
    const uint8_t *const bytes = (const uint8_t *)message;
    const size_t length = sizeof message - 1;

    hg_engine *engine;
    check(hg_engine_new(NULL, &engine), "engine");

    /* Whoever signs. */
    hg_private_key *key;
    hg_public_key *public_key;
    check(hg_private_key_generate(engine, HG_SLH_DSA_SHA2_128F, &key), "key");
    check(hg_public_key_of(key, &public_key), "public key");
    size_t pem_length;
    check(hg_public_key_write(public_key, HG_PEM, NULL, 0, &pem_length), "size of the public key");
    uint8_t *pem = malloc(pem_length);
    if (pem == NULL)
        return 2;
    check(hg_public_key_write(public_key, HG_PEM, pem, pem_length, &pem_length), "public key");
    fwrite(pem, 1, pem_length, stdout);
    hg_public_key_free(public_key);

    hg_message_options options = HG_MESSAGE_OPTIONS_INIT;
    options.context = (const uint8_t *)"letters";
    options.context_length = strlen("letters");
    const size_t signature_length = hg_signature_size(hg_private_key_set(key));
    uint8_t *signature = malloc(signature_length);
    if (signature == NULL)
        return 2;
    check(hg_sign(engine, key, &options, bytes, length, signature, signature_length), "signature");
    hg_private_key_free(key);

    /* Whoever reads. */
    check(hg_public_key_read(pem, pem_length, &public_key), "public key");
    check(hg_verify(engine, public_key, &options, bytes, length, signature, signature_length), "verification");
    signature[0] ^= 1;
    hg_status changed = hg_verify(engine, public_key, &options, bytes, length, signature, signature_length);
    printf("%s: valid. Changed: %s.\n", hg_set_name(hg_public_key_set(public_key)), hg_status_text(changed));

    hg_public_key_free(public_key);
    hg_engine_free(engine);
    free(signature);
    free(pem);
    return changed == HG_INVALID_SIGNATURE ? 0 : 1;
}
