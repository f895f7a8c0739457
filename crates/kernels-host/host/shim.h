// Runs the kernels on the host, block after block: a fibre for each thread of a block, so that barriers are real.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>
#define HOST 1
#define TID (shim::tid)
#define THREADS (shim::threads)
#define BID (shim::bid)
#define BLOCKS (shim::blocks)
#define BARRIER() shim::barrier()
#define SHARED_ADD(x, v) shim::fetch_add(x, v)

namespace shim {
static thread_local uint32_t tid, threads, bid, blocks;

// A fibre outlives the block: once a thread of the kernel has ended, the fibre runs the thread of this number in the next block. So `makecontext` and
// `setcontext`, which call the system, run once for each fibre. Switches use the compiler's own jumps, which call nothing. (`longjmp` of a C library may
// refuse to jump to another stack.)
struct Fibre {
  ucontext_t first;
  void* at[5];
  std::unique_ptr<char[]> stack;
  bool begun = false, done;
};
static const size_t STACK = 64 << 10;
static thread_local void* scheduler[5];
static thread_local std::vector<Fibre> fibres;
static thread_local void (*body)(const void*);
static thread_local const void* body_args;

static inline uint32_t fetch_add(uint32_t& x, uint32_t v) { uint32_t old = x; x += v; return old; }
static __attribute__((noinline)) void leave() {
  if (__builtin_setjmp(fibres[tid].at) == 0) __builtin_longjmp(scheduler, 1);
}
static __attribute__((noinline)) void resume(Fibre& f) {
  if (__builtin_setjmp(scheduler) != 0) return;
  if (f.begun) __builtin_longjmp(f.at, 1);
  f.begun = true;
  setcontext(&f.first);
}
// Other threads write to the block's memory meanwhile, which the compiler does not see in a jump.
static void barrier() {
  if (threads == 1) return;
  asm volatile("" ::: "memory");
  leave();
  asm volatile("" ::: "memory");
}
static void run_fibre() {
  for (;;) {
    body(body_args);
    fibres[tid].done = true;
    barrier();
  }
}
// Each thread runs up to the barrier in its turn; a thread that ends while others wait at one is a fault of the kernel.
static bool block() {
  if (threads == 1) { tid = 0; body(body_args); return true; }
  if (fibres.size() < threads) fibres.resize(threads);
  for (uint32_t i = 0; i < threads; i++) {
    Fibre& f = fibres[i];
    f.done = false;
    if (f.begun) continue;
    if (!f.stack) f.stack.reset(new char[STACK]);
    getcontext(&f.first);
    f.first.uc_stack.ss_sp = f.stack.get();
    f.first.uc_stack.ss_size = STACK;
    f.first.uc_link = nullptr;
    makecontext(&f.first, run_fibre, 0);
  }
  for (;;) {
    uint32_t done = 0;
    for (tid = 0; tid < threads; tid++) {
      resume(fibres[tid]);
      asm volatile("" ::: "memory");
      done += fibres[tid].done;
    }
    if (done == threads) return true;
    if (done != 0) {
      // Some wait in the middle of this kernel.
      for (Fibre& f : fibres) f.begun = false;
      return false;
    }
  }
}
static bool launch(void (*kernel)(const void*), const void* args, uint32_t grid, uint32_t size) {
  body = kernel;
  body_args = args;
  blocks = grid;
  threads = size;
  for (bid = 0; bid < blocks; bid++) if (!block()) return false;
  return true;
}
}
