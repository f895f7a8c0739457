// Poseidon's sponge as zk_sponge.k has it, on tensor cores: an instance over four lanes. total: instances.
#ifndef TENSOR_SPONGE_H
#define TENSOR_SPONGE_H
#include "zk/sponge.h"
#include "zk/tensor.h"

#define MADE (MADE_SIZE * instance)
#define START (START_SIZE * instance)
#define JOB(what) AT(a.jobs, JOB_SIZE * instance + (what))

// Permutations of an instance.
FN U32 steps_of(const Args& a, U32 flags, U32 instance) {
  if ((flags & OF_MU) != 0u) return blocks_of(JOB(JOB_BYTES)) + 1u;
  return (flags & OF_COM) != 0u ? 43u : (flags & OF_BALL) != 0u ? 5u : 1u;
}

// A cell of the state that an instance starts from.
FN U32 start_of(const Args& a, U32 flags, U32 instance, U32 cell) {
  if ((flags & OF_MU) != 0u) return AT(a.keys, KEY_SIZE * JOB(JOB_KEY) + KEY_STATE + cell);
  if ((flags & OF_COM) == 0u) return 0u;
  U32 job = (flags & OF_PUBLIC) != 0u ? instance : AT(a.trace, TRY_SIZE * instance);
  return AT(a.nodes, START_SIZE * job + START_STATE + cell);
}

// What a cell of the rate absorbs before permutation `step`, of which `left` follow, but of w1.
FN U32 element_of(const Args& a, U32 flags, U32 instance, U32 step, U32 left, U32 cell) {
  if ((flags & OF_MU) != 0u) {
    U32 bytes = JOB(JOB_BYTES), at = JOB(JOB_AT);
    if (left == 0u) return AT(a.outs, START + START_MU + cell);
    return bytes == IS_BLOCK ? AT(a.nodes, at + cell) : message_element(a.nodes, at, bytes, step, cell);
  }
  if (step > 0u || cell > 16u) return 0u;
  if ((flags & OF_BALL) == 0u) {
    U32 i = cell - 1u;
    return cell == 0u ? 0u : pair(AT(a.keys, KEY_SIZE * instance + KEY_TR + (i >> 1)) >> (16u * (i & 1u)));
  }
  if (cell == 0u || cell > 12u) return cell == 0u ? 2u : 0u;
  bool judges = (flags & OF_PUBLIC) != 0u;
  return judges ? U32(fe24_at(a.sigs, SIG_SIZE * instance, cell - 1u)) : AT(a.outs, MADE + MADE_C + cell - 1u);
}

// Where cells go that are squeezed after permutation `step`, of which `left` follow, and how many.
FN U32 squeezed_to(const Args& a, U32 flags, U32 instance, U32 step, U32 left, INOUT(U32, count)) {
  if ((flags & OF_BALL) != 0u) {
    count = 9u;
    return MADE + MADE_DRAWS + 9u * step;
  }
  if ((flags & OF_MU) != 0u) {
    count = left > 1u ? 0u : left == 1u ? U32(RATE) : U32(CELLS);
    return START + (left > 0u ? START_MU : START_STATE);
  }
  if ((flags & OF_TR) != 0u) {
    count = U32(CELLS);
    return KEY_SIZE * instance + KEY_STATE;
  }
  count = left > 0u ? 0u : 12u;
  return MADE + MADE_C;
}

// The cells of a lane one place further, the first one to the end: loops over them stay short code, in registers.
FN void turn(I32 (&v)[OWN]) {
  I32 first = v[0];
  UNROLL for (int i = 1; i < OWN; i++) v[i - 1] = v[i];
  v[OWN - 1] = first;
}

// Own cells of the state that an instance has before its first permutation, or before it hashes mu.
FN void begin(const Args& a, U32 flags, U32 instance, U32 left, U32 from, I32 (&v)[OWN]) {
  bool is_empty = (flags & OF_MU) != 0u && left == 0u;
  ROLL for (U32 cell = from; cell < from + OWN; cell++) {
    U32 n = cell < U32(CELLS) && !is_empty ? start_of(a, flags, instance, cell) : 0u;
    v[0] = cell < U32(CELLS) ? centred(I32(n) + FIRST[cell]) : 1;
    turn(v);
  }
}

// The message of an instance that hashes none: mu is given, or it is the state's.
FN void copy_mu(const Args& a, U32 instance, U32 from) {
  bool is_mu = JOB(JOB_BYTES) == IS_MU;
  ROLL for (U32 cell = from; cell < min(from + OWN, U32(RATE)); cell++) {
    AT(a.outs, START + START_MU + cell) =
        is_mu ? AT(a.nodes, JOB(JOB_AT) + cell) : AT(a.keys, KEY_SIZE * JOB(JOB_KEY) + KEY_STATE + cell);
  }
}

// Own cells absorb elements of block `step` of w1, a byte each. Nine bytes begin in the first of three words.
FN void absorb_w1(const Args& a, U32 instance, U32 step, U32 from, I32 unit, I32 (&v)[OWN]) {
  U32 word = 6u * step + (from >> 2), w[3];
  UNROLL for (U32 i = 0u; i < 3u; i++) {
    bool is_there = from < U32(RATE) && word + i < DEGREE;
    w[i] = is_there ? AT(a.outs, MADE + MADE_W1 + word + i) : 0u;
  }
  U32 shift = 8u * (from & 3u);
  w[0] = __funnelshift_r(w[0], w[1], shift);
  // The third lane's cells from 24 on absorb nothing.
  w[1] = __funnelshift_r(w[1], w[2], shift) & (from == 2u * OWN ? 0xffffu : 0xffffffffu);
  w[2] = from == 2u * OWN ? 0u : w[2] >> shift;
  UNROLL for (U32 i = 0u; i < OWN; i++) {
    v[i] = centred(v[i] + mul_int(I32((w[i >> 2] >> (8u * (i & 3u))) & 255u), unit));
  }
}

// Squeezes own cells, and reports whether any differs from the signature's c~ if signatures are judged.
FN bool squeeze(const Args& a, U32 instance, U32 to, U32 count, U32 from, I32 d, bool judges, I32 (&v)[OWN]) {
  I32 inverse = mul_int(inverse_int(d), 1);
  bool differs = false;
  ROLL for (U32 cell = from; cell < from + OWN; cell++) {
    if (cell < count) {
      U32 x = U32(once(canonical(canonical(mul_int(v[0], inverse)) - FIRST[cell])));
      AT(a.roots, to + cell) = x;
      if (judges) differs = differs || x != U32(fe24_at(a.sigs, SIG_SIZE * instance, cell));
    }
    turn(v);
  }
  return differs;
}

// The states of a quad in the other order: loops over them have the first one's registers.
FN void swap(I32 (&v)[STATES][OWN]) {
  UNROLL for (int i = 0; i < OWN; i++) {
    I32 first = v[0][i];
    v[0][i] = v[STATES - 1u][i];
    v[STATES - 1u][i] = first;
  }
}

// What a thread has to know beside its states, in the block's memory: a permutation takes all registers.
SHARED(places, 4 * MAX_THREADS)
#define ALL places[tid_again()]
#define STEP places[MAX_THREADS + tid_again()]
#define FLAGS places[2 * MAX_THREADS + tid_again()]
#define STRIDE places[3 * MAX_THREADS + tid_again()]

FN void absorb_and_squeeze(const Args& a) {
  FLAGS = a.flags;
  STRIDE = STATES * (GRID / 4u);
  load_operands();
  // All warps of a block go through its loops together.
  ROLL for (ALL = STATES * (BID * THREADS / 4u); ALL < a.total; ALL += STRIDE) {
    I32 v[STATES][OWN];
    bool more = true;
    ROLL for (STEP = 0u; more; STEP++) {
      ROLL for (U32 s = 0u; s < STATES; s++) {
        U32 lane = own_lane(), from = OWN * (lane & 3u), step = STEP, first = ALL + 8u * STATES * (tid_again() >> 5);
        U32 flags = FLAGS;
        bool hashes = (flags & OF_MU) != 0u;
        // A quad without an instance computes the last one again, and writes nothing.
        U32 instance = min(first + 8u * s + (lane >> 2), a.total - 1u), steps = steps_of(a, flags, instance);
        if (step == 0u || (hashes && step + 1u == steps)) begin(a, flags, instance, steps - 1u - step, from, v[0]);
        if (hashes && steps == 1u && step == 0u) copy_mu(a, instance, from);
        // An element is added as a numerator over d.
        I32 unit = mul_int(I32(__shfl_sync(LANES, v[0][8], lane | 3u)), R_SQUARED);
        if ((flags & OF_COM) != 0u) {
          absorb_w1(a, instance, step, from, unit, v[0]);
        } else if (hashes || step == 0u) {
          ROLL for (U32 cell = from; cell < from + OWN; cell++) {
            bool absorbs = step < steps && cell < U32(RATE);
            U32 e = absorbs ? element_of(a, flags, instance, step, steps - 1u - step, cell) : 0u;
            v[0][0] = centred(v[0][0] + mul_int(I32(e), unit));
            turn(v[0]);
          }
        }
        swap(v);
      }
      __syncwarp();
      FORGET();
      permute(v, a.one);
      FORGET();
      more = false;
      ROLL for (U32 s = 0u; s < STATES; s++) {
        U32 lane = own_lane(), from = OWN * (lane & 3u), step = STEP, first = ALL + 8u * STATES * (tid_again() >> 5);
        U32 flags = FLAGS, instance = first + 8u * s + (lane >> 2), count = 0u;
        U32 steps = steps_of(a, flags, min(instance, a.total - 1u));
        bool judges = (flags & (OF_COM | OF_PUBLIC)) == (OF_COM | OF_PUBLIC);
        I32 d = I32(__shfl_sync(LANES, v[0][8], lane | 3u));
        bool differs = false, is_one = instance < a.total;
        U32 to = squeezed_to(a, flags, instance, step, steps - 1u - step, count);
        more = more || (is_one && step + 1u < steps);
        if (is_one && step < steps && count > 0u) differs = squeeze(a, instance, to, count, from, d, judges, v[0]);
        U32 differing = (__ballot_sync(LANES, differs) >> (lane & 28u)) & 15u;
        if (judges && is_one && step + 1u == steps && from == 0u) {
          AT(a.flag, instance) = AT(a.flag, instance) == 0u && differing == 0u ? 1u : 0u;
        }
        swap(v);
      }
      more = any_more(more);
    }
  }
}
#endif
