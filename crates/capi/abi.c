/* The ABI of libhypergrove on 64-bit machines, as the Rust side has it: made by the test `abi` of the crate hypergrove-capi. A C
   compiler checks that hypergrove.h says the same. */
#include "hypergrove.h"

#ifdef __cplusplus
#define HG_ASSERT(fact) static_assert(fact, #fact)
extern "C" {
#else
#define HG_ASSERT(fact) _Static_assert(fact, #fact)
#endif
#define HG_MEMBER(type, member, offset, size) \
    HG_ASSERT(offsetof(type, member) == offset && sizeof ((type *)0)->member == size)

typedef void (*hg_done)(void *, hg_status, uint8_t const *, size_t);

size_t hg_cache_size(uint32_t, uint32_t);
hg_status hg_devices(char *, size_t, size_t *);
hg_status hg_engine_cancel(hg_engine const *);
hg_status hg_engine_devices(hg_engine const *, char *, size_t, size_t *);
hg_status hg_engine_drain(hg_engine const *, uint32_t);
void hg_engine_free(hg_engine *);
hg_status hg_engine_new(hg_engine_options const *, hg_engine **);
hg_status hg_engine_notices(hg_engine const *, char *, size_t, size_t *);
hg_status hg_engine_wait_for_room(hg_engine const *);
hg_status hg_engine_with(hg_engine const *, hg_work_options const *, hg_engine **);
char const * hg_error_text(void);
hg_status hg_keygen_rows(hg_engine const *, uint32_t, size_t, uint8_t const *, size_t, uint8_t *, size_t, uint8_t *, size_t);
void * hg_memory_bytes(hg_memory const *);
void hg_memory_free(hg_memory *);
int32_t hg_memory_is_reached(hg_memory const *);
size_t hg_memory_length(hg_memory const *);
hg_status hg_memory_new(hg_engine const *, size_t, hg_memory **);
hg_status hg_private_key_cache(hg_engine const *, hg_private_key const *, hg_cache_options const *, hg_private_key **);
uint32_t hg_private_key_cached_layers(hg_private_key const *);
hg_status hg_private_key_check(hg_engine const *, hg_private_key const *);
void hg_private_key_free(hg_private_key *);
hg_status hg_private_key_from_raw(uint32_t, uint8_t const *, size_t, hg_private_key **);
hg_status hg_private_key_generate(hg_engine const *, uint32_t, hg_private_key **);
hg_status hg_private_key_read(uint8_t const *, size_t, hg_private_key **);
hg_status hg_private_key_read_encrypted(uint8_t const *, size_t, uint8_t const *, size_t, hg_private_key **);
uint32_t hg_private_key_set(hg_private_key const *);
size_t hg_private_key_size(uint32_t);
hg_status hg_private_key_write(hg_private_key const *, uint32_t, uint8_t *, size_t, size_t *);
hg_status hg_private_key_write_encrypted(hg_private_key const *, uint8_t const *, size_t, uint32_t, uint8_t *, size_t, size_t *);
void hg_public_key_free(hg_public_key *);
hg_status hg_public_key_from_raw(uint32_t, uint8_t const *, size_t, hg_public_key **);
hg_status hg_public_key_of(hg_private_key const *, hg_public_key **);
hg_status hg_public_key_read(uint8_t const *, size_t, hg_public_key **);
uint32_t hg_public_key_set(hg_public_key const *);
size_t hg_public_key_size(uint32_t);
hg_status hg_public_key_write(hg_public_key const *, uint32_t, uint8_t *, size_t, size_t *);
char const * hg_row_status_text(uint8_t);
size_t hg_seed_size(uint32_t);
hg_status hg_set_by_name(char const *, uint32_t *);
char const * hg_set_name(uint32_t);
hg_status hg_sha256(hg_engine const *, uint8_t const *, size_t, uint8_t *);
hg_status hg_sha256_rows(hg_engine const *, hg_column const *, size_t, uint8_t *, size_t, uint8_t *);
hg_status hg_sign(hg_engine const *, hg_private_key const *, hg_message_options const *, uint8_t const *, size_t, uint8_t *, size_t);
hg_status hg_sign_queued(hg_engine const *, hg_private_key const *, hg_message_options const *, uint8_t const *, size_t, hg_done, void *, uint32_t, hg_ticket **);
hg_status hg_sign_rows(hg_engine const *, hg_sign_batch const *, hg_message_options const *, uint8_t *, size_t, uint8_t *);
size_t hg_signature_size(uint32_t);
char const * hg_status_text(int32_t);
hg_status hg_ticket_cancel(hg_ticket const *);
void hg_ticket_free(hg_ticket *);
hg_status hg_verify(hg_engine const *, hg_public_key const *, hg_message_options const *, uint8_t const *, size_t, uint8_t const *, size_t);
hg_status hg_verify_queued(hg_engine const *, hg_public_key const *, hg_message_options const *, uint8_t const *, size_t, uint8_t const *, size_t, hg_done, void *, uint32_t, hg_ticket **);
hg_status hg_verify_rows(hg_engine const *, hg_verify_batch const *, hg_message_options const *, uint8_t *);
char const * hg_version(void);
void hg_wipe(void *, size_t);

HG_ASSERT(sizeof(hg_engine_options) == 56);
HG_MEMBER(hg_engine_options, size, 0, 8);
HG_MEMBER(hg_engine_options, devices, 8, 8);
HG_MEMBER(hg_engine_options, device_count, 16, 8);
HG_MEMBER(hg_engine_options, memory, 24, 8);
HG_MEMBER(hg_engine_options, cache, 32, 8);
HG_MEMBER(hg_engine_options, threads, 40, 4);
HG_MEMBER(hg_engine_options, flags, 44, 4);
HG_MEMBER(hg_engine_options, device_timeout, 48, 8);
HG_ASSERT(sizeof(hg_work_options) == 24);
HG_MEMBER(hg_work_options, size, 0, 8);
HG_MEMBER(hg_work_options, timeout, 8, 8);
HG_MEMBER(hg_work_options, flags, 16, 4);
HG_MEMBER(hg_work_options, reserved, 20, 4);
HG_ASSERT(sizeof(hg_cache_options) == 24);
HG_MEMBER(hg_cache_options, size, 0, 8);
HG_MEMBER(hg_cache_options, memory, 8, 8);
HG_MEMBER(hg_cache_options, layers, 16, 4);
HG_MEMBER(hg_cache_options, reserved, 20, 4);
HG_ASSERT(sizeof(hg_message_options) == 48);
HG_MEMBER(hg_message_options, size, 0, 8);
HG_MEMBER(hg_message_options, context, 8, 8);
HG_MEMBER(hg_message_options, context_length, 16, 8);
HG_MEMBER(hg_message_options, randomizer, 24, 8);
HG_MEMBER(hg_message_options, randomizer_length, 32, 8);
HG_MEMBER(hg_message_options, prehash, 40, 4);
HG_MEMBER(hg_message_options, flags, 44, 4);
HG_ASSERT(sizeof(hg_column) == 40);
HG_MEMBER(hg_column, bytes, 0, 8);
HG_MEMBER(hg_column, length, 8, 8);
HG_MEMBER(hg_column, width, 16, 8);
HG_MEMBER(hg_column, stride, 24, 8);
HG_MEMBER(hg_column, offsets, 32, 8);
HG_ASSERT(sizeof(hg_sign_batch) == 88);
HG_MEMBER(hg_sign_batch, size, 0, 8);
HG_MEMBER(hg_sign_batch, rows, 8, 8);
HG_MEMBER(hg_sign_batch, key, 16, 8);
HG_MEMBER(hg_sign_batch, table, 24, 8);
HG_MEMBER(hg_sign_batch, table_length, 32, 8);
HG_MEMBER(hg_sign_batch, key_index, 40, 8);
HG_MEMBER(hg_sign_batch, messages, 48, 40);
HG_ASSERT(sizeof(hg_verify_batch) == 176);
HG_MEMBER(hg_verify_batch, size, 0, 8);
HG_MEMBER(hg_verify_batch, rows, 8, 8);
HG_MEMBER(hg_verify_batch, key, 16, 8);
HG_MEMBER(hg_verify_batch, table, 24, 8);
HG_MEMBER(hg_verify_batch, table_length, 32, 8);
HG_MEMBER(hg_verify_batch, key_index, 40, 8);
HG_MEMBER(hg_verify_batch, keys, 48, 40);
HG_MEMBER(hg_verify_batch, messages, 88, 40);
HG_MEMBER(hg_verify_batch, signatures, 128, 40);
HG_MEMBER(hg_verify_batch, set, 168, 4);
HG_MEMBER(hg_verify_batch, reserved, 172, 4);

HG_ASSERT(HG_OK == 0);
HG_ASSERT(HG_INVALID_SIGNATURE == 1);
HG_ASSERT(HG_BAD_INPUT == 2);
HG_ASSERT(HG_BUFFER_TOO_SMALL == 3);
HG_ASSERT(HG_KEY_DAMAGED == 4);
HG_ASSERT(HG_WITHHELD == 5);
HG_ASSERT(HG_DEVICE_FAILED == 6);
HG_ASSERT(HG_OUT_OF_MEMORY == 7);
HG_ASSERT(HG_UNSUPPORTED == 8);
HG_ASSERT(HG_NO_RANDOMNESS == 9);
HG_ASSERT(HG_IO == 10);
HG_ASSERT(HG_INTERNAL == 11);
HG_ASSERT(HG_PASSPHRASE == 12);
HG_ASSERT(HG_QUEUE_FULL == 13);
HG_ASSERT(HG_CANCELLED == 14);
HG_ASSERT(HG_ROW_NOT_COMPUTED == 0);
HG_ASSERT(HG_ROW_SIGNED == 1);
HG_ASSERT(HG_ROW_VALID == 2);
HG_ASSERT(HG_ROW_INVALID == 3);
HG_ASSERT(HG_ROW_BAD_OFFSETS == 4);
HG_ASSERT(HG_ROW_SIGNATURE_LENGTH == 5);
HG_ASSERT(HG_ROW_KEY_LENGTH == 6);
HG_ASSERT(HG_ROW_NO_SUCH_KEY == 7);
HG_ASSERT(HG_ROW_DIGEST_LENGTH == 8);
HG_ASSERT(HG_ROW_KEY_DAMAGED == 9);
HG_ASSERT(HG_ROW_OUT_OF_MEMORY == 10);
HG_ASSERT(HG_ROW_HASHED == 11);
HG_ASSERT(HG_SLH_DSA_SHA2_128S == 20);
HG_ASSERT(HG_SLH_DSA_SHA2_128F == 21);
HG_ASSERT(HG_SLH_DSA_SHA2_192S == 22);
HG_ASSERT(HG_SLH_DSA_SHA2_192F == 23);
HG_ASSERT(HG_SLH_DSA_SHA2_256S == 24);
HG_ASSERT(HG_SLH_DSA_SHA2_256F == 25);
HG_ASSERT(HG_SLH_DSA_SHAKE_128S == 26);
HG_ASSERT(HG_SLH_DSA_SHAKE_128F == 27);
HG_ASSERT(HG_SLH_DSA_SHAKE_192S == 28);
HG_ASSERT(HG_SLH_DSA_SHAKE_192F == 29);
HG_ASSERT(HG_SLH_DSA_SHAKE_256S == 30);
HG_ASSERT(HG_SLH_DSA_SHAKE_256F == 31);
HG_ASSERT(HG_ZKDILITHIUM == 1000);
HG_ASSERT(HG_SHA2_224 == 4);
HG_ASSERT(HG_SHA2_256 == 1);
HG_ASSERT(HG_SHA2_384 == 2);
HG_ASSERT(HG_SHA2_512 == 3);
HG_ASSERT(HG_SHA2_512_224 == 5);
HG_ASSERT(HG_SHA2_512_256 == 6);
HG_ASSERT(HG_SHA3_224 == 7);
HG_ASSERT(HG_SHA3_256 == 8);
HG_ASSERT(HG_SHA3_384 == 9);
HG_ASSERT(HG_SHA3_512 == 10);
HG_ASSERT(HG_SHAKE_128 == 11);
HG_ASSERT(HG_SHAKE_256 == 12);
HG_ASSERT(HG_PURE == 0);
HG_ASSERT(HG_RAW == 1);
HG_ASSERT(HG_DER == 2);
HG_ASSERT(HG_PEM == 3);
HG_ASSERT(HG_VERIFY_SIGNATURES == 1);
HG_ASSERT(HG_REDUNDANT == 2);
HG_ASSERT(HG_DETERMINISTIC == 1);
HG_ASSERT(HG_MESSAGE_IS_DIGEST == 2);
HG_ASSERT(HG_INTERNAL_INTERFACE == 4);

#ifdef __cplusplus
}
#endif
