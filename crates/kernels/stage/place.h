// Where in the hypertree something is: the trees and leaves that a job's position selects.
#ifndef PLACE_H
#define PLACE_H

#define WOTS_HASH 0u
#define WOTS_PK 1u
#define TREE 2u
#define FORS_TREE 3u
#define FORS_ROOTS 4u
#define WOTS_PRF 5u
#define FORS_PRF 6u

struct Place {
  U32 key;      // first word of the key
  U32 tree_hi;  // the tree of the layer
  U32 tree_lo;
  U32 leaf;     // the leaf that is revealed there
};

FN U64 shifted(U64 x, U32 s) { return s < 64u ? x >> s : x ^ x; }

// What a job selects in a layer (FIPS 205, Algorithm 12, lines 7 to 9).
FN Place place_of(U32Ptr jobs, U32 at, U32 layer, U32 hp) {
  Place p;
  U64 tree = (U64(AT(jobs, at + 1u)) << 32) | U64(AT(jobs, at + 2u));
  p.key = AT(jobs, at) * KEY_WORDS;
  p.leaf = AT(jobs, at + 3u);
  if (layer > 0u) p.leaf = U32(shifted(tree, hp * (layer - 1u))) & ((1u << hp) - 1u);
  tree = shifted(tree, hp * layer);
  p.tree_hi = U32(tree >> 32);
  p.tree_lo = U32(tree);
  return p;
}

// The tree of that number: a.layers of them a job, or as ALL_TREES and EACH_KEY say.
FN Place xmss_place(U32Ptr jobs, U32 tree, U32 layer, U32 layers, U32 hp, U32 job_words, U32 first, U32 flags) {
  if ((flags & (ALL_TREES | EACH_KEY)) != 0u) {
    bool each = (flags & EACH_KEY) != 0u;
    Place p;
    p.key = each ? tree * KEY_WORDS : 0u;
    p.tree_hi = 0u;
    p.tree_lo = each ? 0u : first + tree;
    p.leaf = 0u;
    return p;
  }
  return place_of(jobs, tree / layers * job_words, layer, hp);
}

// Words of a signature, and where its parts begin (geometry.rs).
#define SIG_WORDS (U32(NW) * (1u + P_K * (1u + P_A) + P_D * (P_LEN + P_HP)))
#define SIG_FORS(i) (U32(NW) * (1u + (i) * (1u + P_A)))
#define SIG_XMSS(layer) (U32(NW) * (1u + P_K * (1u + P_A) + (layer) * (P_LEN + P_HP)))
#define JOB(job) ((job) * (JOB_WORDS + P_K))
// The node that `layer` signs; the root of that layer is the next.
#define ROOT(job, layer) (((job) * (P_D + 1u) + (layer)) * U32(NW))

// The root that a signature's layer leads to: it is stored, and put out as bytes with TOPS, or with COMPARE compared with
// the one that is there and noted if they agree.
#define PUT_ROOT(job, layer, node) { \
  if ((a.flags & COMPARE) != 0u) { \
    U32 difference = 0u; \
    UNROLL for (int j = 0; j < NW; j++) difference |= node[j] ^ AT(a.roots, ROOT(job, layer + 1u) + U32(j)); \
    if (difference == 0u) AT(a.flag, AGREES(job, layer)) = 1u; \
  } else { \
    UNROLL for (int j = 0; j < NW; j++) AT(a.roots, ROOT(job, layer + 1u) + U32(j)) = node[j]; \
    if ((a.flags & TOPS) != 0u) UNROLL for (int j = 0; j < NW; j++) AT(a.outs, job * U32(NW) + U32(j)) = word_of(node[j]); \
  } }

// Digit `chain` of a node in memory, in base 2^lg_w, the checksum's digits after the message's (FIPS 205, Algorithm 7,
// lines 1 to 7).
FN U32 wots_digit(U32Ptr p, U32 at, U32 chain, U32 len, U32 len1, U32 lg_w) {
  U32 mask = (1u << lg_w) - 1u, digit = 0u;
  U32 i = chain < len1 ? chain : 0u, end = chain < len1 ? chain + 1u : len1, checksum = 0u;
  ROLL for (; i < end; i++) {
    U32 bit = i * lg_w, skip = bit & 31u;
    U32 window = digits_of(AT(p, at + (bit >> 5))) << skip;
    if (skip + lg_w > 32u) window |= digits_of(AT(p, at + (bit >> 5) + 1u)) >> (32u - skip);
    digit = window >> (32u - lg_w);
    checksum += mask - digit;
  }
  return chain < len1 ? digit : (checksum >> (lg_w * (len - 1u - chain))) & mask;
}
#endif
