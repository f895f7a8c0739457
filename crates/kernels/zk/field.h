// The field of zkDilithium, Z_Q with Q = 7·2^20 + 1, in 32-bit integers by Montgomery's product with R = 2^32; sums of
// products for Poseidon, where FP64 is 1, in doubles. An element is any integer of its class; docs/zkdilithium.md has
// the bounds.
//
//   I32, I64              signed words             TABLE(T, x, N) … CONST_END     read by each thread where it likes
//                                                  UNIFORM(T, x, N) … CONST_END   read by all threads at one place
//   Factor, Wide          an element in a sum of products, and the sum before it is reduced
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
  #define Factor double
  #define Wide double
#else
  #define Factor I32
  #define Wide I64
#endif

#include "zk/scheme.h"

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
// x/R, at most |x|/R + Q/2 in absolute value: x and m·Q have the same lower word, so that the upper ones are
// subtracted.
FN I32 reduce_int(I64 x) {
  I32 m = I32(U32(x) * Q_INVERSE);
#if defined(__CUDA_ARCH__)
  return I32(x >> 32) - __mulhi(m, Q);
#else
  return I32(x >> 32) - I32((I64(m) * I64(Q)) >> 32);
#endif
}
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
    // Every operation is exact, fused or not: integers below 2^53.
    #define FMA(a, b, c) ((a) * (b) + (c))
  #endif
  #define HALFWAY 6755399441055744.0  // 1.5·2^52, of which the last 51 bits are 0 and the unit is 1
  #define HALFWAY_HIGH 0x43380000u    // its upper word

FN double double_of(U32 high, U32 low) {
  #if defined(__CUDA_ARCH__)
  return __hiloint2double(int(high), int(low));
  #elif defined(VULKAN)
  return packDouble2x32(uvec2(low, high));
  #else
  union { U64 bits; double x; } both = {u64(high, low)};
  return both.x;
  #endif
}
FN U64 bits_of(double x) {
  #if defined(__CUDA_ARCH__)
  return U64(__double_as_longlong(x));
  #elif defined(VULKAN)
  uvec2 words = unpackDouble2x32(x);
  return u64(words.y, words.x);
  #else
  union { double x; U64 bits; } both = {x};
  return both.bits;
  #endif
}
// An integer as a double: added to 2^52 + 2^31 in the last bits, which are subtracted.
FN Factor factor(I32 x) { return double_of(0x43300000u, U32(x) ^ 0x80000000u) - 4503601774854144.0; }
FN Wide product(Factor a, Factor b) { return a * b; }
FN Wide add_product(Wide sum, Factor a, Factor b) { return FMA(a, b, sum); }
// x/R for |x| < 2^51: the bits of x + HALFWAY are those of x and of HALFWAY.
FN I32 reduce(Wide x) { return reduce_int(I64(bits_of(x + HALFWAY))) - I32(HALFWAY_HIGH); }
#else
FN Factor factor(I32 x) { return x; }
FN Wide product(Factor a, Factor b) { return product_int(a, b); }
FN Wide add_product(Wide sum, Factor a, Factor b) { return add_product_int(sum, a, b); }
FN I32 reduce(Wide x) { return reduce_int(x); }
#endif

// R²/a for a: a^(Q - 2) by mul_int. The exponent's bits are 110 1111 1111 1111 1111 1111.
FN I32 inverse_int(I32 a) {
  I32 a3 = mul_int(mul_int(a, a), a), a12 = mul_int(a3, a3);
  a12 = mul_int(a12, a12);
  I32 a15 = mul_int(a12, a3), power = a3;
  ROLL for (U32 i = 0u; i < 5u; i++) power = mul_int(power, power);
  power = mul_int(power, a15);
  ROLL for (U32 i = 0u; i < 4u; i++) {
    power = mul_int(power, power);
    power = mul_int(power, power);
    power = mul_int(power, power);
    power = mul_int(power, power);
    power = mul_int(power, a15);
  }
  return power;
}
#endif
