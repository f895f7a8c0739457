// What Poseidon's sponge absorbs, and where its instances lie: for both kernels that compute it.
#ifndef SPONGE_H
#define SPONGE_H
#include "zk/layout.h"

// Two bytes as an element.
FN U32 pair(U32 halfword) { return (halfword & 255u) + 1u + 257u * (((halfword >> 8) & 255u) + 1u); }

// Blocks of a message, the last one perhaps incomplete.
FN U32 blocks_of(U32 bytes) {
  return bytes == IS_MU ? 0u : bytes == IS_BLOCK ? 1u : bytes / 48u + (bytes % 48u + 47u) / 48u;
}

// Element `cell` of block `step` of a message of bytes at `at`, or 0 behind its end.
FN U32 message_element(U32Ptr p, U32 at, U32 bytes, U32 step, U32 cell) {
  U32 from = 48u * step + 2u * cell;
  if (from >= bytes) return 0u;
  U32 halfword = AT(p, at + (from >> 2)) >> (16u * (cell & 1u));
  return from + 1u < bytes ? pair(halfword) : (halfword & 255u) + 1u;
}
#endif
