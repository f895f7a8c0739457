// What differs between CUDA C++, GLSL (Vulkan) and host C++. Every kernel is written once, against these names.
//
//   U32, U64               words                        ARR/ARRIN(T, x, N)   array parameter, in-out / in
//   FN                     a function of the device     CONST_U32(x, N) … CONST_END
//   U32Ptr, AT(p, i), POINTER(u64)   memory             a.x, a.y …           the arguments (args.h)
//   AT_FAR(p, i)           the same for a U64 i
//   QUAD(p, i, w, j)       w[j] … w[j + 3] from p at i, four words at once: at a multiple of 16 bytes
//   TID, THREADS, BID      place in the block           GID, GRID            place among all threads
//   SHARED(x, N)           words of the block           BARRIER()            all threads of the block
#ifndef DIALECT_H
#define DIALECT_H

#if defined(VULKAN)
  #extension GL_EXT_buffer_reference : require
  #extension GL_EXT_scalar_block_layout : require
  #extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
  #extension GL_EXT_control_flow_attributes : require
  // A word that GLSL reserves.
  #define half half_
  #define FN
  #define U32 uint
  #define U64 uint64_t
  #define ARR(T, x, N) inout T x[N]
  #define ARRIN(T, x, N) in T x[N]
  // CONST_U32 … CONST_END is no text here: see `glsl` in src/lib.rs.
  layout(buffer_reference, scalar, buffer_reference_align = 4) buffer U32Ptr { uint v[]; };
  layout(buffer_reference, scalar, buffer_reference_align = 16) buffer QuadPtr { uvec4 v; };
  #define AT(p, i) (p).v[i]
  #define AT_FAR(p, i) U32Ptr(uint64_t(p) + 4ul * (i)).v[0]
  #define POINTER(address) U32Ptr(address)
  #define ARGS(body) layout(push_constant, scalar) uniform Args_ { body } a;
  #define PTR(name) U32Ptr name;
  #define VAL(name) uint name;
  #define SHARED(x, N) shared uint x[N];
  #define KERNEL(name) layout(local_size_x_id = 0) in; void main()
  #define TID gl_LocalInvocationID.x
  #define THREADS gl_WorkGroupSize.x
  #define BID gl_WorkGroupID.x
  #define BLOCKS gl_NumWorkGroups.x
  #define BARRIER() { memoryBarrierShared(); barrier(); }
  #define SHARED_ADD(x, v) atomicAdd(x, v)
  // Drivers unroll, so that modules stay small. Loops over a hash's rounds have neither attribute: whoever makes a
  // pipeline decides.
  #define UNROLL [[unroll]]
  #define ROLL [[dont_unroll]]
#else
  #if defined(__CUDACC_RTC__)
    typedef unsigned int uint32_t;
    typedef unsigned long long uint64_t;
  #else
    #include <stdint.h>
  #endif
  typedef uint32_t U32;
  typedef uint64_t U64;
  typedef uint32_t* U32Ptr;
  #define ARR(T, x, N) T (&x)[N]
  #define ARRIN(T, x, N) const T (&x)[N]
  #define AT(p, i) (p)[i]
  #define AT_FAR(p, i) (p)[i]
  #define POINTER(address) ((U32Ptr)(address))
  #define ARGS(body) struct Args { body };
  #define PTR(name) U32Ptr name;
  #define VAL(name) U32 name;
  #define CONST_END };
  #if defined(HOST)
    #define FN static inline
    #define CONST_U32(x, N) static const U32 x[N] = {
    #define SHARED(x, N) static thread_local U32 x[N];
    #define KERNEL(name) static void name(const Args a)
    #define UNROLL
    #define ROLL
  #else
    #define FN static __device__ __forceinline__
    #define CONST_U32(x, N) static __device__ __constant__ U32 x[N] = {
    #define SHARED(x, N) static __device__ __shared__ U32 x[N];
    #define KERNEL(name) extern "C" __global__ void __launch_bounds__(MAX_THREADS, MIN_BLOCKS) name(const Args a)
    #define UNROLL _Pragma("unroll")
    #define ROLL _Pragma("unroll 1")
    #define TID (threadIdx.x)
    #define THREADS (blockDim.x)
    #define BID (blockIdx.x)
    #define BLOCKS (gridDim.x)
    #define BARRIER() __syncthreads()
    #define SHARED_ADD(x, v) atomicAdd(&(x), v)
  #endif
#endif

// Rounds of the hashes of 64-bit words.
#if defined(VULKAN)
  #define ROLL_64
#elif UNROLLED
  #define ROLL_64 UNROLL
#else
  #define ROLL_64 ROLL
#endif

#if defined(__CUDA_ARCH__)
  #define QUAD(p, i, w, j) { \
    uint4 quad = *(const uint4*)((p) + (i)); \
    w[j] = quad.x; w[(j) + 1] = quad.y; w[(j) + 2] = quad.z; w[(j) + 3] = quad.w; }
#elif defined(VULKAN)
  #define QUAD(p, i, w, j) { \
    uvec4 quad = QuadPtr(uint64_t(p) + 4ul * uint64_t(i)).v; \
    w[j] = quad.x; w[(j) + 1] = quad.y; w[(j) + 2] = quad.z; w[(j) + 3] = quad.w; }
#else
  #define QUAD(p, i, w, j) { \
    w[j] = AT(p, i); w[(j) + 1] = AT(p, (i) + 1u); w[(j) + 2] = AT(p, (i) + 2u); w[(j) + 3] = AT(p, (i) + 3u); }
#endif

#define GID (BID * THREADS + TID)
#define GRID (BLOCKS * THREADS)

FN U32 bswap(U32 x) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(x, 0u, 0x0123u);
#else
  return (x << 24) | ((x & 0xff00u) << 8) | ((x >> 8) & 0xff00u) | (x >> 24);
#endif
}
FN U64 u64(U32 hi, U32 lo) { return (U64(hi) << 32) | U64(lo); }
// The low word of (hi ‖ lo) >> s, for 0 < s < 32.
FN U32 funnel(U32 hi, U32 lo, U32 s) { return (hi << (32u - s)) | (lo >> s); }
// A rotation to the left by s, neither 0 nor 32. A GPU rotates each word by one funnel shift.
FN U64 rotl64(U64 x, U32 s) {
#if defined(__CUDA_ARCH__)
  U32 high = U32(s < 32u ? x >> 32 : x), low = U32(s < 32u ? x : x >> 32);
  return u64(__funnelshift_l(low, high, s), __funnelshift_l(high, low, s));
#elif defined(VULKAN)
  U32 high = U32(s < 32u ? x >> 32 : x), low = U32(s < 32u ? x : x >> 32), right = 32u - (s & 31u);
  return u64(funnel(high, low, right), funnel(low, high, right));
#else
  return (x << s) | (x >> (64u - s));
#endif
}

// An addition that a policy may move to the multiply-add pipe, which is otherwise idle: x·1 + y, where the compiler
// cannot see that the factor is 1. `site` numbers the places in a compression; bit `site` of IMAD (in Vulkan IMAD_SITES) decides.
#if defined(VULKAN) && FAMILY == 0
  // Whoever makes a pipeline decides.
  layout(constant_id = 1) const uint IMAD_SITES = 0u;
  uint add_at(bool multiplies, uint x, uint y, uint one) { return x * (multiplies ? one : 1u) + y; }
  #define ADD(site, x, y) add_at((IMAD_SITES >> site & 1u) != 0u, x, y, one)
  #define SHIFT(site, x, by) ((x) >> (by))
#elif defined(__CUDA_ARCH__) && IMAD != 0
FN U32 add_at(U32 site, U32 x, U32 y, U32 one) {
  if (((U32(IMAD) >> site) & 1u) != 0u) {
    U32 sum;
    asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(one), "r"(y));
    return sum;
  }
  return x + y;
}
// The same for a shift to the right, as the high half of a product.
FN U32 shift_at(U32 site, U32 x, U32 by, U32 one) {
  if (((U32(IMAD) >> site) & 1u) != 0u) {
    U32 high;
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(high) : "r"(x), "r"(one << (32u - by)));
    return high;
  }
  return x >> by;
}
  #define ADD(site, x, y) add_at(site, x, y, one)
  #define SHIFT(site, x, by) shift_at(site, x, by, one)
#else
  #define ADD(site, x, y) ((x) + (y))
  #define SHIFT(site, x, by) ((x) >> (by))
#endif

#endif
