#ifndef ARGS_H
#define ARGS_H
// The arguments of every kernel; `Args` in src/lib.rs is the same structure. 128 bytes, which push constants hold.
ARGS(
  PTR(keys)    // KEY_WORDS a key
  PTR(jobs)    // JOB_WORDS + k a job: key, idx_tree (high, low), idx_leaf, the revealed leaf of each FORS tree
  PTR(ends)    // WOTS+ chain values, one a chain: word planes [chain][word][leaf or unit]
  PTR(trace)   // all values of the revealed leaves' chains: word planes [step][chain][word][job and layer]
  PTR(nodes)   // tree nodes, row by row
  PTR(outs)    // what the kernel puts out
  PTR(roots)   // d + 1 nodes a job: what layer 0 signs (PK_FORS), then the root of each layer
  PTR(sigs)    // signatures
  PTR(flag)    // a word that is not 0 if a chain failed its check, and 1 for each (job, layer) whose root passed it
  VAL(total)   // threads' worth of work
  VAL(count)   // leaves, units or trees: see each kernel
  VAL(shape0)  // k, a, h', d: eight bits each, from the lowest
  VAL(shape1)  // len, len1, lg_w
  VAL(layer0)  // first layer
  VAL(layers)  // number of layers a job
  VAL(base)    // height of the nodes that are given
  VAL(up)      // levels to go up
  VAL(chunk)   // log2 of the nodes a block works on at a time; of `complete` the number of chains
  VAL(first)   // number of the first tree
  VAL(flags)
  VAL(one)     // 1: see ADD
  VAL(skip)    // leaves before the first that is worked on
  VAL(rows)    // (job, layer) pairs whose chain values are kept
)
#define P_K (a.shape0 & 255u)
#define P_A ((a.shape0 >> 8) & 255u)
#define P_HP ((a.shape0 >> 16) & 255u)
#define P_D (a.shape0 >> 24)
#define P_LEN (a.shape1 & 255u)
#define P_LEN1 ((a.shape1 >> 8) & 255u)
#define P_LG_W ((a.shape1 >> 16) & 255u)

#define REVEAL 1u      // authentication paths go to the signatures
#define KEEP 2u        // all nodes go to `trace`, laid out as cached nodes
#define TRACE 8u       // values of the revealed leaves' chains are kept
#define ONLY 16u       // of each tree the revealed leaf alone
#define ALL_TREES 32u  // the trees of one layer of key 0, from number `first` on
#define REPLAY 64u     // of each tree the revealed leaf alone, up to the message's digits
#define COMPARE 256u   // roots are compared with those that are there
#define EACH_KEY 512u  // one tree a key, tree 0 of its layer
#define TOPS 1024u     // roots go out as bytes, one after the other: of trees to `roots`, of signatures to `outs` too
#define SPANS 4096u    // messages lie where a table says
#define QUADS 8192u    // messages begin at multiples of 16 bytes
#define SIGN 16384u    // R is made

#define AGREES(job, layer) (1u + (job) * P_D + (layer))

#define NW (N / 4)
// PK.seed, SK.seed, both states after PK.seed, the address of the cached nodes.
#define KEY_WORDS 42u
#define JOB_WORDS 4u
#define BETWEEN 33u
#endif
