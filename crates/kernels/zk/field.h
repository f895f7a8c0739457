// The field of zkDilithium, Z_Q with Q = 7·2^20 + 1: in 32-bit integers by Montgomery's product with R = 2^32, and for
// Poseidon, where FP64 is 1, in doubles. An element is any integer of its class; docs/zkdilithium.md has the bounds.
//
//   I32, I64              signed words             TABLE(T, x, N) … CONST_END     read by each thread where it likes
//                                                  UNIFORM(T, x, N) … CONST_END   read by all threads at one place
//   Fe, Wide              an element, and a sum of products before it is reduced
#ifndef FIELD_H
#define FIELD_H

#if defined(VULKAN)
  #define I32 int
  #define I64 int64_t
  #define INOUT(T, x) inout T x
  #define TABLE(T, x, N) const T x[N] = T[N](
  #define UNIFORM(T, x, N) const T x[N] = T[N](
#else
  #if defined(__CUDACC_RTC__)
    typedef int I32;
    typedef long long I64;
  #else
    typedef int32_t I32;
    typedef int64_t I64;
  #endif
  #define INOUT(T, x) T& x
  #if defined(HOST)
    #define TABLE(T, x, N) static const T x[N] = {
    #define UNIFORM(T, x, N) static const T x[N] = {
  #else
    #define TABLE(T, x, N) static __device__ const T x[N] = {
    #define UNIFORM(T, x, N) static __device__ __constant__ T x[N] = {
  #endif
#endif

// What memory holds is not kept in registers as well.
#if defined(VULKAN)
  #define FORGET() memoryBarrierShared()
#elif defined(__CUDA_ARCH__)
  #define FORGET() asm volatile("" ::: "memory")
#else
  #define FORGET()
#endif

// TID, which no register keeps from one use to the next.
FN U32 tid_again() {
#if defined(__CUDA_ARCH__)
  U32 tid;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
  return tid;
#else
  return TID;
#endif
}

#if FP64
  #define Fe double
  #define Wide double
#else
  #define Fe I32
  #define Wide I64
#endif

#include "zk/constants.h"

// sum + a·b. Left to itself, the compiler extends the signs of words that it meets twice, and multiplies 64 bits.
FN I64 add_product_int(I64 sum, I32 a, I32 b) {
#if defined(__CUDA_ARCH__)
  I64 out_;
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(out_) : "r"(a), "r"(b), "l"(sum));
  return out_;
#else
  return sum + I64(a) * I64(b);
#endif
}
FN I64 product_int(I32 a, I32 b) {
#if defined(__CUDA_ARCH__)
  I64 out_;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(out_) : "r"(a), "r"(b));
  return out_;
#else
  return I64(a) * I64(b);
#endif
}
// x/R, at most |x|/R + Q/2 in absolute value.
FN I32 reduce_int(I64 x) { return I32(add_product_int(x, I32(U32(x) * Q_INVERSE), -Q) >> 32); }
// a·b/R.
FN I32 mul_int(I32 a, I32 b) { return reduce_int(product_int(a, b)); }
// The representative in [0, Q) of one in [-Q, Q).
FN I32 canonical(I32 x) { return x + (Q & (x >> 31)); }
// The same of one in [0, 2Q).
FN I32 once(I32 x) { return canonical(x - Q); }

#if FP64
  #if defined(__CUDA_ARCH__) || defined(VULKAN)
    #define FMA(a, b, c) fma(a, b, c)
  #else
    // Every operation is exact on integers, fused or not; a quotient may differ by one at a tie, which reduce allows.
    #define FMA(a, b, c) ((a) * (b) + (c))
  #endif
  #define ROUND 6755399441055744.0  // 1.5·2^52: added and subtracted, it rounds to an integer

// The upper word.
FN I32 upper(double x) {
  #if defined(__CUDA_ARCH__)
  return __double2hiint(x);
  #elif defined(VULKAN)
  return I32(unpackDouble2x32(x).y);
  #else
  union { double x; U64 bits; } both = {x};
  return I32(U32(both.bits >> 32));
  #endif
}
FN Wide product(Fe a, Fe b) { return a * b; }
// sum + a·b.
FN Wide add_product(Wide sum, Fe a, Fe b) { return FMA(a, b, sum); }
// A representative in [-(Q + 1)/2, (Q + 1)/2], and 0 for all of class 0.
FN Fe reduce(Wide x) {
  double quotient = FMA(x, 1.0 / double(Q), ROUND) - ROUND;
  return FMA(quotient, -double(Q), x);
}
FN I32 integer(Fe x) { return I32(x); }
// Of what reduce gives: integers other than 0 have an exponent.
FN bool is_zero(Fe x) { return upper(x) == 0; }
// Whether it is ONE_FOR_ZERO, the only one from 2^22 up.
FN bool was_zero(Fe x) { return upper(x) >= 0x41500000; }
#else
FN Wide product(Fe a, Fe b) { return product_int(a, b); }
FN Wide add_product(Wide sum, Fe a, Fe b) { return add_product_int(sum, a, b); }
FN Fe reduce(Wide x) { return reduce_int(x); }
FN I32 integer(Fe x) { return x; }
FN bool is_zero(Fe x) { return x == 0; }
FN bool was_zero(Fe x) { return x == I32(ONE_FOR_ZERO); }
#endif
// a·b/RADIX, RADIX being R for integers and 1 for doubles.
FN Fe mul(Fe a, Fe b) { return reduce(product(a, b)); }

// a^(Q - 2), as products by `mul`: the exponent's bits are 110 1111 1111 1111 1111 1111.
FN Fe power_of_inverse(Fe a) {
  Fe a3 = mul(mul(a, a), a), a12 = mul(a3, a3);
  a12 = mul(a12, a12);
  Fe a15 = mul(a12, a3), power = a3;
  ROLL for (U32 i = 0u; i < 5u; i++) power = mul(power, power);
  power = mul(power, a15);
  ROLL for (U32 i = 0u; i < 4u; i++) {
    power = mul(power, power);
    power = mul(power, power);
    power = mul(power, power);
    power = mul(power, power);
    power = mul(power, a15);
  }
  return power;
}
#endif
