// Where everything of zkDilithium lies, in words. src/zk.rs reads it from here.
#ifndef LAYOUT_H
#define LAYOUT_H
#include "zk/field.h"

#define VECTOR 1024u  // four polynomials

// An expanded key: A transformed, row by row; s1 and s2, or t, transformed, each value in 32 bits with a sign; the
// state after tr; tr; `key`.
#define KEY_A 0u
#define KEY_S1 4096u
#define KEY_S2 5120u
#define KEY_T KEY_S1
#define KEY_STATE 6144u
#define KEY_TR 6179u
#define KEY_KEY 6187u
#define KEY_SIZE 6196u  // a multiple of four words

// A private key: rho, key, tr, s1, s2, t. A public key: rho, t.
#define SK_KEY 8u
#define SK_TR 16u
#define SK_S 24u
#define SK_T 216u
#define SK_SIZE 984u
#define PK_T 8u
#define PK_SIZE 776u
#define ETA_SIZE 24u
#define T_SIZE 768u

// What a key pair grows from: rho, rho', key.
#define SEED_RHO 0u
#define SEED_RHO_PRIME 8u
#define SEED_KEY 24u
#define SEED_SIZE 32u
// A polynomial of s1 or s2 in key generation: 2 - x, four bits each.
#define SHORT_SIZE 32u

// A job: its key, the first word of its message, its bytes or a kind of elements.
#define JOB_KEY 0u
#define JOB_AT 1u
#define JOB_BYTES 2u
#define JOB_SIZE 3u
#define IS_BLOCK 0xffffffffu  // 24 elements, to be hashed
#define IS_MU 0xfffffffeu     // mu itself

// What a job's attempts start from: mu, the state after mu, rho''.
#define START_MU 0u
#define START_STATE 24u
#define START_RHO2 59u
#define START_SIZE 75u

// An attempt's job and kappa; of verification job i is attempt i.
#define TRY_SIZE 2u
// What an attempt makes: y as it is squeezed, w, w1 a byte each in the order in which they are hashed, c~, what Ball
// draws, and the signature.
#define MADE_Y 0u
#define MADE_W 576u
#define MADE_W1 1600u
#define MADE_C 1856u
#define MADE_DRAWS 1868u
#define MADE_SIG 1913u
#define MADE_SIZE 2500u  // a multiple of four words
#define Y_SIZE 144u
#define SIG_Z 9u
#define SIG_SIZE 585u

// flags
#define OF_PUBLIC 1u   // keys are public ones; signatures are judged, not made
#define OF_TR 2u       // zk_sponge: 0 and tr, from the beginning
#define OF_MU 4u       // the message, from the state after tr; then mu from the beginning
#define OF_COM 8u      // w1, from the state after mu
#define OF_BALL 16u    // draws from c~

// Code i of codes of `bits` bits that lie one after the other, lowest bit first.
FN U32 code_at(U32Ptr p, U32 at, U32 bits, U32 i) {
  U32 bit = bits * i, skip = bit & 31u, word = at + (bit >> 5), code = AT(p, word) >> skip;
  if (skip + bits > 32u) code |= AT(p, word + 1u) << (32u - skip);
  return code & ((1u << bits) - 1u);
}
// Element i of fe24, reduced: any value below 2^24 is taken.
FN I32 fe24_at(U32Ptr p, U32 at, U32 i) { return once(once(I32(code_at(p, at, 24u, i)))); }
// Coefficient i of g18, and of eta3.
FN I32 g18_at(U32Ptr p, U32 at, U32 i) { return GAMMA1 - I32(code_at(p, at, 18u, i)); }
FN I32 eta3_at(U32Ptr p, U32 at, U32 i) { return ETA - I32(code_at(p, at, 3u, i)); }
#endif
