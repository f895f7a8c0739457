// A block reduces a tile of nodes, whole subtrees of them, level by level in shared memory.
#ifndef TREEHASH_H
#define TREEHASH_H

// 16 kB: what every Vulkan device has.
SHARED(tile, 4096)

// Trees and the heights of their nodes: what turns a node's number into its address and its destinations.
#define PUT_TILE(i, node) { UNROLL for (int j = 0; j < NW; j++) tile[(i) * U32(NW) + U32(j)] = node[j]; }
#define GET_TILE(i, node) { UNROLL for (int j = 0; j < NW; j++) node[j] = tile[(i) * U32(NW) + U32(j)]; }

// The tile holds `number` nodes of height a.base, the first of them number `from` among all trees' nodes of that
// height. HEIGHT is the trees' height; SIBLING(tree, job, in_sig, leaf) sets job, the place in the signature of the
// path, and the revealed leaf; ADDRESS(tree, height, index, key, adrs) the key and address of a parent;
// TOP(tree, node) takes a root.
#define REDUCE(from, number, HEIGHT, SIBLING, ADDRESS, TOP) \
  ROLL for (U32 z = 0u; ; z++) { \
    U32 height = a.base + z, level = HEIGHT - height, have = (number) >> z, start = (from) >> z; \
    ROLL for (U32 i = TID; i < have; i += THREADS) { \
      U32 node[NW], tree = (start + i) >> level, index = (start + i) & ((1u << level) - 1u); \
      GET_TILE(i, node) \
      if ((a.flags & REVEAL) != 0u && level > 0u) { \
        U32 in_sig, leaf; \
        SIBLING(tree, in_sig, leaf) \
        if (index == ((leaf >> height) ^ 1u)) { \
          in_sig += height * U32(NW); \
          UNROLL for (int j = 0; j < NW; j++) AT(a.sigs, in_sig + U32(j)) = word_of(node[j]); \
        } \
      } \
      if ((a.flags & KEEP) != 0u) { \
        U32 at = (tree * ((2u << HEIGHT) - 1u) + (2u << HEIGHT) - (2u << level) + index) * U32(NW); \
        UNROLL for (int j = 0; j < NW; j++) AT(a.trace, at + U32(j)) = word_of(node[j]); \
      } \
      if (z == a.up) { \
        if (level == 0u) { TOP(tree, node) } \
        else { UNROLL for (int j = 0; j < NW; j++) AT(a.outs, (start + i) * U32(NW) + U32(j)) = node[j]; } \
      } \
    } \
    if (z == a.up) break; \
    U32 parents = have >> 1; \
    ROLL for (U32 i0 = 0u; i0 < parents; i0 += THREADS) { \
      U32 i = i0 + TID, left[NW], right[NW]; \
      if (i < parents) { \
        U32 key, adrs[7], tree = ((start >> 1) + i) >> (level - 1u), index = ((start >> 1) + i) & ((1u << (level - 1u)) - 1u); \
        GET_TILE(2u * i, left) \
        GET_TILE(2u * i + 1u, right) \
        ADDRESS(tree, height + 1u, index, key, adrs) \
        thash_h(a.keys, key, adrs, left, right, a.one); \
      } \
      BARRIER(); \
      if (i < parents) PUT_TILE(i, left) \
    } \
    BARRIER(); \
  }

// XMSS trees: xmss_place says which.
#define XMSS_LAYER(tree) (a.layer0 + (tree) % a.layers)
#define XMSS_PLACE(tree) xmss_place(a.jobs, tree, XMSS_LAYER(tree), a.layers, P_HP, JOB_WORDS + P_K, a.first, a.flags)
#define XMSS_SIBLING(tree, in_sig, leaf_) { \
  leaf_ = XMSS_PLACE(tree).leaf; \
  in_sig = tree / a.layers * SIG_WORDS + SIG_XMSS(XMSS_LAYER(tree)) + P_LEN * U32(NW); }
#define XMSS_ADDRESS(tree, height_, index_, key_, adrs) { \
  Place p = XMSS_PLACE(tree); \
  key_ = p.key; \
  adrs[0] = XMSS_LAYER(tree); adrs[1] = p.tree_hi; adrs[2] = p.tree_lo; adrs[3] = TREE; \
  adrs[4] = 0u; adrs[5] = height_; adrs[6] = index_; }
#define XMSS_TOP(tree, node) { \
  bool tops = (a.flags & TOPS) != 0u; \
  U32 at = tops ? tree * U32(NW) : ROOT(tree / a.layers, XMSS_LAYER(tree) + 1u); \
  UNROLL for (int j = 0; j < NW; j++) AT(a.roots, at + U32(j)) = tops ? word_of(node[j]) : node[j]; }

// FORS trees: k a job.
#define FORS_SIBLING(tree, in_sig, leaf_) { \
  leaf_ = AT(a.jobs, JOB(tree / P_K) + JOB_WORDS + tree % P_K); \
  in_sig = tree / P_K * SIG_WORDS + SIG_FORS(tree % P_K) + U32(NW); }
#define FORS_ADDRESS(tree, height_, index_, key_, adrs) { \
  U32 job = JOB(tree / P_K); \
  key_ = AT(a.jobs, job) * KEY_WORDS; \
  adrs[0] = 0u; adrs[1] = AT(a.jobs, job + 1u); adrs[2] = AT(a.jobs, job + 2u); adrs[3] = FORS_TREE; \
  adrs[4] = AT(a.jobs, job + 3u); adrs[5] = height_; adrs[6] = ((tree % P_K) << (P_A - (height_))) + (index_); }
#define FORS_TOP(tree, node) { UNROLL for (int j = 0; j < NW; j++) AT(a.roots, tree * U32(NW) + U32(j)) = node[j]; }
#endif
