// From a leaf to its root by a signature's authentication path (FIPS 205, Algorithms 11 and 17).
#ifndef CLIMB_H
#define CLIMB_H

// `node`, of leaf number `leaf` in its tree, becomes the root of `height` levels; the path lies at sigs[in_sig..]. adrs is
// the address of the tree's nodes, its last word the node's number.
FN void climb_path(U32Ptr keys, U32 key, ARR(U32, adrs, 7), U32Ptr sigs, U32 in_sig, U32 leaf, U32 height, ARR(U32, node, NW), U32 one) {
  ROLL for (U32 z = 0u; z < height; z++) {
    U32 left[NW], right[NW];
    bool is_right = ((leaf >> z) & 1u) != 0u;
    UNROLL for (int j = 0; j < NW; j++) {
      U32 sibling = word_of(AT(sigs, in_sig + U32(j)));
      left[j] = is_right ? sibling : node[j];
      right[j] = is_right ? node[j] : sibling;
    }
    in_sig += U32(NW);
    adrs[5] = z + 1u;
    adrs[6] >>= 1;
    thash_h(keys, key, adrs, left, right, one);
    UNROLL for (int j = 0; j < NW; j++) node[j] = left[j];
  }
}
#endif
