// Vectors of polynomials in the block's memory, and their packing.
#ifndef VECTOR_H
#define VECTOR_H
#include "zk/layout.h"
#include "zk/ntt.h"

// Rows `to` … `to` + 3 become the rows of A by rows 0 … 3, without those where `minus` is 1 of t by row 4. R times too
// small, as intt wants it.
FN void times_key(U32Ptr keys, U32 key, U32 minus, U32 to) {
  ROLL for (U32 t = TID; t < VECTOR; t += THREADS) {
    U32 i = t >> 8, x = t & 255u;
    I64 sum = I64(0);
    UNROLL for (U32 j = 0u; j < 4u; j++) {
      sum = add_product_int(sum, I32(AT(keys, key + KEY_A + VECTOR * i + DEGREE * j + x)), at_ring(PLACE(j, x)));
    }
    if (minus != 0u) sum = add_product_int(sum, I32(AT(keys, key + KEY_T + t)), -at_ring(PLACE(4u, x)));
    ring[PLACE(to + i, x)] = U32(reduce_int(sum));
  }
}

// Codes in the rows from `row` on, of `bits` bits, to words: `group` of them, which fill whole words, a thread.
FN void pack_codes(U32 row, U32 rows, U32 bits, U32 group, U32Ptr p, U32 at) {
  U32 groups = DEGREE / group, words = bits * group / 32u;
  ROLL for (U32 t = TID; t < rows * groups; t += THREADS) {
    U32 first = (t & (groups - 1u)) * group, held = 0u, word = 0u, to = at + t * words;
    ROLL for (U32 i = 0u; i < group; i++) {
      U32 code = ring[PLACE(row + t / groups, first + i)];
      word |= code << held;
      held += bits;
      if (held >= 32u) {
        AT(p, to) = word;
        to++;
        held -= 32u;
        word = held > 0u ? code >> (bits - held) : 0u;
      }
    }
  }
}
#endif
