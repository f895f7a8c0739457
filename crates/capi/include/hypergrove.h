/*
 * hypergrove: SLH-DSA (FIPS 205), zkDilithium and SHA-256 on CPUs and GPUs. The guide with a first program is docs/c.md.
 *
 * Rules that hold for every function, unless the function says otherwise:
 *
 * Status    A function that can fail returns an hg_status. HG_OK is the only success, and of a verification the only verdict
 *           "valid". After any other status the results are not to be used; handles are set to NULL. hg_error_text tells
 *           what happened. No argument makes a function crash, if pointers are NULL or point to what the function takes:
 *           wrong values, lengths, sizes, alignments and overlaps give HG_BAD_INPUT.
 * Threads   Any thread may call any function at any time, with the same engine and keys as other threads. Only what is being
 *           freed must not be in use. A thread that calls has 256 KiB of stack or more.
 * Fork      Keys survive fork. An engine that the parent has used refuses to work in the child (HG_IO): make a new engine
 *           there, and do not free the parent's. An engine with one thread on "cpu:0" survives, too.
 * Memory    What a function gives out as a handle (hg_engine, hg_private_key, hg_public_key, hg_memory) is freed by the function
 *           hg_..._free. Nothing else is to be freed. Arguments are read and written during the call alone, and nothing else may
 *           write to them meanwhile. What is written must not overlap what is read or written otherwise.
 * Secrets   The library wipes its copies of private keys. What it writes to your memory you wipe: hg_wipe.
 * Structs   Structs whose first member is `size` can grow in later releases. Initialise them with their HG_..._INIT.
 * Signals   No function may be called from a signal handler.
 */
#ifndef HYPERGROVE_H
#define HYPERGROVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HG_MUST_CHECK __attribute__((warn_unused_result))
#else
#define HG_MUST_CHECK
#endif

/* The release that this header belongs to; hg_version tells that of the library. */
#define HG_VERSION "0.9.0"

/* ---- Statuses ---------------------------------------------------------------------------------------------------------- */

typedef int32_t hg_status;

enum {
    /* Done; of a verification: the signature is valid. */
    HG_OK = 0,
    /* The signature is not valid. */
    HG_INVALID_SIGNATURE = 1,
    /* An argument is not what the function takes. The same call fails again. */
    HG_BAD_INPUT = 2,
    /* The memory for the result is too small; its size was written to *length. */
    HG_BUFFER_TOO_SMALL = 3,
    /* The private key is damaged and must not sign. */
    HG_KEY_DAMAGED = 4,
    /* A check found a result wrong, and the result was withheld. Distrust the device. */
    HG_WITHHELD = 5,
    /* A device failed. Another device may do the same work. */
    HG_DEVICE_FAILED = 6,
    /* The engine's memory budget, or a device's memory, is too small. */
    HG_OUT_OF_MEMORY = 7,
    /* The device, the scheme or this build cannot do this. */
    HG_UNSUPPORTED = 8,
    /* The operating system gave no randomness. */
    HG_NO_RANDOMNESS = 9,
    /* The operating system refused something else, or the engine belongs to the process that this one was forked from. */
    HG_IO = 10,
    /* A fault of the library: please report it. The call had no effect that can be relied on. */
    HG_INTERNAL = 11,
    /* The private key is encrypted: there is no passphrase, or it is wrong, or the file is damaged. */
    HG_PASSPHRASE = 12,
    /* The queue has no room for the job now. */
    HG_QUEUE_FULL = 13,
    /* The work did not begin in time: the queued job's deadline or the work's timeout passed, hg_ticket_cancel or hg_engine_cancel cancelled it,
     * or the engine was freed or drained before. */
    HG_CANCELLED = 14
};

/* A few words for a status, for example "out of memory". Never NULL, static. */
const char *hg_status_text(hg_status status);

/* What the latest call of this thread that failed reports: what happened, to which thing, what to do. "" if none has failed. The text
 * holds until the next call of this thread that fails, or the thread's end. */
const char *hg_error_text(void);

/* The library's release, for example "0.9.0". Static. */
const char *hg_version(void);

/* Overwrites memory with zeros; the compiler does not leave this out. NULL is ignored. */
void hg_wipe(void *bytes, size_t length);

/* ---- Parameter sets ---------------------------------------------------------------------------------------------------- */

/* SLH-DSA's sets have the last arc of their object identifier (2.16.840.1.101.3.4.3.x, RFC 9909). zkDilithium has one set. */
typedef uint32_t hg_set;

enum {
    HG_SLH_DSA_SHA2_128S = 20,
    HG_SLH_DSA_SHA2_128F = 21,
    HG_SLH_DSA_SHA2_192S = 22,
    HG_SLH_DSA_SHA2_192F = 23,
    HG_SLH_DSA_SHA2_256S = 24,
    HG_SLH_DSA_SHA2_256F = 25,
    HG_SLH_DSA_SHAKE_128S = 26,
    HG_SLH_DSA_SHAKE_128F = 27,
    HG_SLH_DSA_SHAKE_192S = 28,
    HG_SLH_DSA_SHAKE_192F = 29,
    HG_SLH_DSA_SHAKE_256S = 30,
    HG_SLH_DSA_SHAKE_256F = 31,
    HG_ZKDILITHIUM = 1000
};

/* The set of a name: "SLH-DSA-SHA2-128s" or short "sha2-128s", in any case and
   with underscores for hyphens; "zkDilithium". */
HG_MUST_CHECK hg_status hg_set_by_name(const char *name, hg_set *set);

/* A set's name, or NULL if there is no such set. Static. */
const char *hg_set_name(hg_set set);

/* Bytes of a set's signatures and raw keys, and of the seed that a key pair is made from; 0 if there is no such set. */
size_t hg_signature_size(hg_set set);
size_t hg_public_key_size(hg_set set);
size_t hg_private_key_size(hg_set set);
size_t hg_seed_size(hg_set set);

/* ---- Engines ----------------------------------------------------------------------------------------------------------- */

/* Devices, threads and memory. A process needs one; threads share it. */
typedef struct hg_engine hg_engine;

/* Every signature is verified before it is handed out. */
#define HG_VERIFY_SIGNATURES 1u
/* Keys, signatures and verdicts are computed twice and compared. */
#define HG_REDUNDANT 2u

typedef struct hg_engine_options {
    size_t size;
    /* "cpu:0", "cuda:0", ... as hg_devices names them; "cuda" means all of the GPUs, and a UUID can replace the number: "cuda:GPU-5c01d2e7".
     * NULL: the CPU, and GPUs for batches where measurements say they are faster. */
    const char *const *devices;
    size_t device_count;
    /* Bytes of the host's memory for programs and batches. 0: 256 MiB, or 2 GiB for each GPU, but at most half of what is free. */
    uint64_t memory;
    /* A directory for compiled GPU kernels, which no other user may write. NULL: kernels are compiled in every process. */
    const char *cache;
    /* Threads of the CPU. 0: as many as the operating system offers. With 1, the CPU works on the thread that calls. */
    uint32_t threads;
    /* HG_VERIFY_SIGNATURES, HG_REDUNDANT. */
    uint32_t flags;
    /* Milliseconds that the engine waits for a GPU, at least, before the GPU counts as hung. If 100 times the predicted time of the jobs is
     * longer, that is the limit of the wait. 0: 60,000. UINT64_MAX: no limit. */
    uint64_t device_timeout;
} hg_engine_options;

#define HG_ENGINE_OPTIONS_INIT {sizeof(hg_engine_options), NULL, 0, 0, NULL, 0, 0, 0}

/* Makes an engine. No thread is started and no driver loaded before they are needed. `options` may be NULL. */
HG_MUST_CHECK hg_status hg_engine_new(const hg_engine_options *options, hg_engine **engine);

typedef struct hg_work_options {
    size_t size;
    /* Milliseconds after which no more of a call's work begins: the call ends with HG_CANCELLED when the work that has begun is done. 0: the
     * engine's timeout; without one, no limit. */
    uint64_t timeout;
    /* The checks that are added to the engine's: HG_VERIFY_SIGNATURES, HG_REDUNDANT. */
    uint32_t flags;
    uint32_t reserved;
} hg_work_options;

#define HG_WORK_OPTIONS_INIT {sizeof(hg_work_options), 0, 0, 0}

/* The same engine for work with other options: both share devices, threads, memory and the queue, and each is freed for itself.
 * hg_engine_drain of one stops the queue of both. Checks of `engine` stay on, and its timeout holds if `options` has none. `options` may be
 * NULL: the work has the options of `engine`, and can be cancelled. docs/c.md shows the calls. */
HG_MUST_CHECK hg_status hg_engine_with(const hg_engine *engine, const hg_work_options *options, hg_engine **with);

/* Ends the work of an engine of hg_engine_with, from any thread and for ever: no more of it begins, and its calls end with HG_CANCELLED.
 * Queued jobs keep their place until a device is free next, and end then. A queued job that has begun goes on. */
HG_MUST_CHECK hg_status hg_engine_cancel(const hg_engine *engine);

/* Frees an engine. NULL is ignored. Keys and hg_memory outlive it. */
void hg_engine_free(hg_engine *engine);

/* The machine's devices, one a line: "cpu:0 NAME". Drivers are loaded to ask them. Writes a string to `text`, which has `room` bytes, and
 * its size with the final zero to *length. With `text` NULL and `room` 0 only the size is written. */
HG_MUST_CHECK hg_status hg_devices(char *text, size_t room, size_t *length);

/* The same of the devices that the engine uses now. */
HG_MUST_CHECK hg_status hg_engine_devices(const hg_engine *engine, char *text, size_t room, size_t *length);

/* What an operator should know, one a line: failures of devices so far, and what was left out (a cache that others may write, or
 * threads that the system did not start). Written as by hg_devices; an empty string if there is nothing. */
HG_MUST_CHECK hg_status hg_engine_notices(const hg_engine *engine, char *text, size_t room, size_t *length);

/* ---- Keys -------------------------------------------------------------------------------------------------------------- */

/* Keys do not change once they are made, and know their set. */
typedef struct hg_private_key hg_private_key;
typedef struct hg_public_key hg_public_key;

enum {
    /* FIPS 205's encoding, or zkDilithium's: hg_private_key_size or hg_public_key_size bytes. */
    HG_RAW = 1,
    /* PKCS#8 or SPKI (RFC 9909). zkDilithium has none. */
    HG_DER = 2,
    /* The same as text; zkDilithium has labels of its own. No zero ends the text. */
    HG_PEM = 3
};

/* A new key from the operating system's randomness. */
HG_MUST_CHECK hg_status hg_private_key_generate(const hg_engine *engine, hg_set set, hg_private_key **key);

/* Reads PKCS#8 (PEM or DER), or zkDilithium's PEM. HG_PASSPHRASE: the key is encrypted. Whatever reads a private key computes the public key
 * again from the secrets, which takes as long as making the key: HG_KEY_DAMAGED if it is another one. */
HG_MUST_CHECK hg_status hg_private_key_read(const uint8_t *data, size_t length, hg_private_key **key);

/* Reads PKCS#8 under a passphrase (PEM or DER; PBES2 with scrypt or PBKDF2 and AES-CBC, as OpenSSL writes it). This takes as much time as
 * whoever encrypted the key chose, some seconds and 256 MiB at most. */
HG_MUST_CHECK hg_status hg_private_key_read_encrypted(const uint8_t *data, size_t length, const uint8_t *passphrase,
                                                      size_t passphrase_length, hg_private_key **key);

/* Reads SPKI (PEM or DER), or zkDilithium's PEM. */
HG_MUST_CHECK hg_status hg_public_key_read(const uint8_t *data, size_t length, hg_public_key **key);

/* Take raw bytes. Of a private key, the public key is computed again, as by hg_private_key_read. */
HG_MUST_CHECK hg_status hg_private_key_from_raw(hg_set set, const uint8_t *data, size_t length, hg_private_key **key);
HG_MUST_CHECK hg_status hg_public_key_from_raw(hg_set set, const uint8_t *data, size_t length, hg_public_key **key);

/* The public key of a private key. */
HG_MUST_CHECK hg_status hg_public_key_of(const hg_private_key *private_key, hg_public_key **key);

/* Computes the public key again from the secrets: HG_KEY_DAMAGED if it is another one. Reading a key does this, too. */
HG_MUST_CHECK hg_status hg_private_key_check(const hg_engine *engine, const hg_private_key *key);

/* What hg_private_key_cache keeps. Give NULL instead for one layer, the usual choice. Otherwise give `memory` or `layers`, and 0 for the
 * other. */
typedef struct hg_cache_options {
    size_t size;
    /* As many layers as fit into so many bytes, and at most as many as can be cached: none if not even one fits. */
    uint64_t memory;
    /* Layers, from the top. */
    uint32_t layers;
    /* 0. */
    uint32_t reserved;
} hg_cache_options;

#define HG_CACHE_OPTIONS_INIT {sizeof(hg_cache_options), 0, 0, 0}

/* Bytes that the nodes of the top layers take. 0 if there is no such set, if the set has fewer layers (zkDilithium has none), or if there
 * are more bytes than a size_t counts. */
size_t hg_cache_size(hg_set set, uint32_t layers);

/* Computes the nodes of a key's top layers once, and gives a copy of the key that keeps them: the copy makes the same signatures in less
 * time. HG_UNSUPPORTED for zkDilithium. HG_OUT_OF_MEMORY: while they are computed, the nodes do not fit the engine's memory budget.
 * Other threads may use the key and the engine meanwhile. The copy serves wherever a private key does, for any thread and after fork.
 * hg_private_key_free frees the copy with its nodes, before the key or after it. The nodes are no secret; hg_private_key_write does not
 * write them. */
HG_MUST_CHECK hg_status hg_private_key_cache(const hg_engine *engine, const hg_private_key *key, const hg_cache_options *options,
                                             hg_private_key **cached);

/* The layers whose nodes a key keeps; 0 for NULL. */
uint32_t hg_private_key_cached_layers(const hg_private_key *key);

/* Write a key in a format (HG_RAW, HG_DER, HG_PEM) to `out`, which has `room` bytes, and its size to *length. With `out` NULL and `room`
 * 0 only the size is written. Wipe a private key with hg_wipe. */
HG_MUST_CHECK hg_status hg_private_key_write(const hg_private_key *key, uint32_t format, uint8_t *out, size_t room, size_t *length);
HG_MUST_CHECK hg_status hg_public_key_write(const hg_public_key *key, uint32_t format, uint8_t *out, size_t room, size_t *length);

/* Writes PKCS#8 under a passphrase (scrypt, AES-256-CBC), HG_DER or HG_PEM, as hg_private_key_write. Each call takes 16 MiB and a tenth of a
 * second or more, the one that asks for the size too; 512 bytes suffice for DER, 1,024 for PEM. */
HG_MUST_CHECK hg_status hg_private_key_write_encrypted(const hg_private_key *key, const uint8_t *passphrase,
                                                       size_t passphrase_length, uint32_t format, uint8_t *out, size_t room,
                                                       size_t *length);

/* A key's set; 0 for NULL. */
hg_set hg_private_key_set(const hg_private_key *key);
hg_set hg_public_key_set(const hg_public_key *key);

/* Free a key; a private key is wiped. NULL is ignored. */
void hg_private_key_free(hg_private_key *key);
void hg_public_key_free(hg_public_key *key);

/* ---- One signature ----------------------------------------------------------------------------------------------------- */

/* Hash functions of HashSLH-DSA: the last arc of their object identifier (2.16.840.1.101.3.4.2.x). */
enum {
    HG_PURE = 0,
    HG_SHA2_256 = 1,
    HG_SHA2_384 = 2,
    HG_SHA2_512 = 3,
    HG_SHA2_224 = 4,
    HG_SHA2_512_224 = 5,
    HG_SHA2_512_256 = 6,
    HG_SHA3_224 = 7,
    HG_SHA3_256 = 8,
    HG_SHA3_384 = 9,
    HG_SHA3_512 = 10,
    HG_SHAKE_128 = 11,
    HG_SHAKE_256 = 12
};

/* Signing: the same message always has the same signature. */
#define HG_DETERMINISTIC 1u
/* With a pre-hash: the message is its digest already. */
#define HG_MESSAGE_IS_DIGEST 2u
/* FIPS 205's internal interface: the message is M'. There is neither context nor pre-hash. */
#define HG_INTERNAL_INTERFACE 4u

/* How SLH-DSA signs and verifies. Give NULL instead for pure SLH-DSA without a context, hedged. zkDilithium takes NULL, or options without
 * any choice: it is deterministic and has no contexts. */
typedef struct hg_message_options {
    size_t size;
    /* At most 255 bytes. */
    const uint8_t *context;
    size_t context_length;
    /* Signing: opt_rand instead of the operating system's randomness, n bytes for each message. Otherwise NULL. */
    const uint8_t *randomizer;
    size_t randomizer_length;
    /* HG_PURE, or the hash function of HashSLH-DSA. A key whose file says HashSLH-DSA (RFC 9909) is for its own hash function alone: name
     * it here. */
    uint32_t prehash;
    /* HG_DETERMINISTIC, HG_MESSAGE_IS_DIGEST, HG_INTERNAL_INTERFACE. */
    uint32_t flags;
} hg_message_options;

#define HG_MESSAGE_OPTIONS_INIT {sizeof(hg_message_options), NULL, 0, NULL, 0, 0, 0}

/* Signs a message. `signature_length` is hg_signature_size of the key's set. */
HG_MUST_CHECK hg_status hg_sign(const hg_engine *engine, const hg_private_key *key, const hg_message_options *options,
                                const uint8_t *message, size_t message_length, uint8_t *signature, size_t signature_length);

/* Verifies a signature: HG_OK, HG_INVALID_SIGNATURE, or why there is no verdict (a signature of another length: HG_BAD_INPUT). */
HG_MUST_CHECK hg_status hg_verify(const hg_engine *engine, const hg_public_key *key, const hg_message_options *options,
                                  const uint8_t *message, size_t message_length, const uint8_t *signature,
                                  size_t signature_length);

/* SHA-256 of a message, 32 bytes. */
HG_MUST_CHECK hg_status hg_sha256(const hg_engine *engine, const uint8_t *message, size_t message_length, uint8_t *sum);

/* ---- Queued jobs: many callers share batches ---------------------------------------------------------------------------- */

/* Gets the result of a queued job, once. `user` is the caller's. The signature of a job that signs is `result`, for as long as the function
 * runs; otherwise `result` is NULL. hg_error_text is that of the job. A thread of the engine calls, or the thread that queues the job,
 * before hg_sign_queued or hg_verify_queued returns. Other results wait meanwhile, so hand the result on and return: write to a pipe,
 * wake the loop. The function may call all of this library but hg_engine_wait_for_room and hg_engine_drain. It must not throw. */
typedef void (*hg_done)(void *user, hg_status status, const uint8_t *result, size_t length);

/* A queued job that may be cancelled. */
typedef struct hg_ticket hg_ticket;

/* Queue what hg_sign and hg_verify do. With HG_OK `done` is called exactly once, whatever becomes of the job; otherwise it is not called.
 * Arguments are copied, so they may change once the function returns; keys may be freed. Jobs that wait at the same time share a
 * batch; a job alone begins at once. HG_QUEUE_FULL: wait for room or refuse work. hg_engine_free cancels what has not begun, and waits for
 * what has. In a child after fork: HG_IO. If there is no result after `milliseconds`, `done` gets HG_CANCELLED, and a job that has not begun does
 * not begin; 0: no such deadline. `ticket` gets a handle by which the job can be cancelled, or is NULL. */
HG_MUST_CHECK hg_status hg_sign_queued(const hg_engine *engine, const hg_private_key *key, const hg_message_options *options,
                                       const uint8_t *message, size_t message_length, hg_done done, void *user,
                                       uint32_t milliseconds, hg_ticket **ticket);
HG_MUST_CHECK hg_status hg_verify_queued(const hg_engine *engine, const hg_public_key *key, const hg_message_options *options,
                                         const uint8_t *message, size_t message_length, const uint8_t *signature,
                                         size_t signature_length, hg_done done, void *user, uint32_t milliseconds,
                                         hg_ticket **ticket);

/* Cancels a queued job. If `done` was not called, it gets HG_CANCELLED, on this thread, before this function returns; a job that has not begun does
 * not begin. The status is HG_OK also where the job was done already. */
HG_MUST_CHECK hg_status hg_ticket_cancel(const hg_ticket *ticket);

/* Frees the handle, at any time. The job goes on. NULL is ignored. */
void hg_ticket_free(hg_ticket *ticket);

/* Waits until the queue has room. Another thread may take the room first: queue in a loop. */
HG_MUST_CHECK hg_status hg_engine_wait_for_room(const hg_engine *engine);

/* Takes no more queued jobs from now on and waits until those that there are have their results. Jobs that have not begun after
 * `milliseconds` are cancelled, and the status is HG_CANCELLED. Other calls of the engine go on. Engines of hg_engine_with share the queue. */
HG_MUST_CHECK hg_status hg_engine_drain(const hg_engine *engine, uint32_t milliseconds);

/* ---- Rows: many signatures in a call ----------------------------------------------------------------------------------- */

/* One value for each row. Values of one width lie `stride` bytes apart; what is between two values is yours and is not read. With
 * `offsets`, value i is bytes[offsets[i]] up to bytes[offsets[i + 1]], as Arrow's LargeBinary has them: one offset more than rows. */
typedef struct hg_column {
    const uint8_t *bytes;
    /* Bytes that are there: at least (rows - 1) * stride + width. */
    size_t length;
    /* Bytes of a value. Without meaning with `offsets`. */
    size_t width;
    /* Bytes from one value to the next. 0: width. */
    size_t stride;
    /* Or NULL. */
    const int64_t *offsets;
} hg_column;

/* What became of a row, a byte. */
enum {
    HG_ROW_NOT_COMPUTED = 0,
    HG_ROW_SIGNED = 1,
    HG_ROW_VALID = 2,
    HG_ROW_INVALID = 3,
    HG_ROW_BAD_OFFSETS = 4,
    HG_ROW_SIGNATURE_LENGTH = 5,
    HG_ROW_KEY_LENGTH = 6,
    HG_ROW_NO_SUCH_KEY = 7,
    HG_ROW_DIGEST_LENGTH = 8,
    HG_ROW_KEY_DAMAGED = 9,
    HG_ROW_OUT_OF_MEMORY = 10,
    HG_ROW_HASHED = 11
};

/* A few words for the status of a row. Never NULL, static. */
const char *hg_row_status_text(uint8_t status);

/* Messages to be signed: by `key`, or row i by table[key_index[i]]. Give one of the two. All keys of a table are of one set and have the
 * same number of cached layers. */
typedef struct hg_sign_batch {
    size_t size;
    size_t rows;
    const hg_private_key *key;
    const hg_private_key *const *table;
    size_t table_length;
    const uint32_t *key_index;
    hg_column messages;
} hg_sign_batch;

#define HG_SIGN_BATCH_INIT {sizeof(hg_sign_batch), 0, NULL, NULL, 0, NULL, {NULL, 0, 0, 0, NULL}}

/* Signatures to be verified: with `key`, row i with table[key_index[i]], or row i with the raw key in row i of `keys`, all of `set`. Give
 * one of the three. */
typedef struct hg_verify_batch {
    size_t size;
    size_t rows;
    const hg_public_key *key;
    const hg_public_key *const *table;
    size_t table_length;
    const uint32_t *key_index;
    hg_column keys;
    hg_column messages;
    hg_column signatures;
    /* With `keys`, otherwise 0. */
    hg_set set;
    /* 0. */
    uint32_t reserved;
} hg_verify_batch;

#define HG_VERIFY_BATCH_INIT                                                                                              \
    {sizeof(hg_verify_batch), 0, NULL, NULL, 0, NULL, {NULL, 0, 0, 0, NULL}, {NULL, 0, 0, 0, NULL}, {NULL, 0, 0, 0, NULL}, 0, 0}

/* Signs one message for each row. Signatures are packed: `signatures_length` is rows times hg_signature_size. `statuses` has a byte for
 * each row. HG_OK: every row has its status. Otherwise rows that were signed before the error keep their signature and status. A
 * row that is not signed has a zero signature. */
HG_MUST_CHECK hg_status hg_sign_rows(const hg_engine *engine, const hg_sign_batch *batch, const hg_message_options *options,
                                     uint8_t *signatures, size_t signatures_length, uint8_t *statuses);

/* Verifies one signature for each row. HG_OK: every row has its verdict or why there is none; this is not to say that all are valid. */
HG_MUST_CHECK hg_status hg_verify_rows(const hg_engine *engine, const hg_verify_batch *batch, const hg_message_options *options,
                                       uint8_t *statuses);

/* New key pairs, raw and packed: `private_length` is rows times hg_private_key_size, `public_length` rows times hg_public_key_size. They
 * are made of `seeds` (rows times hg_seed_size bytes, secret), or with `seeds` NULL of the operating system's randomness. If keys cannot be
 * made, both are zero; after HG_BAD_INPUT nothing was written. */
HG_MUST_CHECK hg_status hg_keygen_rows(const hg_engine *engine, hg_set set, size_t rows, const uint8_t *seeds, size_t seeds_length,
                                       uint8_t *private_keys, size_t private_length, uint8_t *public_keys, size_t public_length);

/* SHA-256 of one message for each row; sums are packed, 32 bytes each: `sums_length` is 32 times rows. */
HG_MUST_CHECK hg_status hg_sha256_rows(const hg_engine *engine, const hg_column *messages, size_t rows, uint8_t *sums,
                                       size_t sums_length, uint8_t *statuses);

/* ---- Memory that devices reach ----------------------------------------------------------------------------------------- */

/* Memory for rows, zero at first, which CUDA's devices copy from and to by themselves. Rows may lie anywhere; in this memory a GPU is
 * faster. It takes long to make: use it for many calls. It is wiped when it is freed, and may outlive its engine. */
typedef struct hg_memory hg_memory;

HG_MUST_CHECK hg_status hg_memory_new(const hg_engine *engine, size_t length, hg_memory **memory);

/* Where it is; NULL for NULL. It is yours to read and write until it is freed. */
void *hg_memory_bytes(const hg_memory *memory);

/* Its size; 0 for NULL. */
size_t hg_memory_length(const hg_memory *memory);

/* 1 if a device reaches it by itself; 0 if it is ordinary memory, as it is without such a device. */
int32_t hg_memory_is_reached(const hg_memory *memory);

/* Wipes and frees it. NULL is ignored. */
void hg_memory_free(hg_memory *memory);

#ifdef __cplusplus
}
#endif

#endif
