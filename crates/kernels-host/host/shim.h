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

struct Fibre {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done;
};
static const size_t STACK = 64 << 10;
static thread_local ucontext_t scheduler;
static thread_local std::vector<Fibre> fibres;
static thread_local void (*body)(const void*);
static thread_local const void* body_args;

static inline uint32_t fetch_add(uint32_t& x, uint32_t v) { uint32_t old = x; x += v; return old; }
static void barrier() {
  if (threads > 1) swapcontext(&fibres[tid].context, &scheduler);
}
static void run_fibre() {
  body(body_args);
  fibres[tid].done = true;
  swapcontext(&fibres[tid].context, &scheduler);
}
// Each thread runs up to the barrier in its turn; a thread that ends while others wait at one is a fault of the kernel.
static bool block() {
  if (threads == 1) { tid = 0; body(body_args); return true; }
  if (fibres.size() < threads) fibres.resize(threads);
  for (uint32_t i = 0; i < threads; i++) {
    Fibre& f = fibres[i];
    if (!f.stack) f.stack.reset(new char[STACK]);
    f.done = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = nullptr;
    makecontext(&f.context, run_fibre, 0);
  }
  for (;;) {
    uint32_t done = 0;
    for (tid = 0; tid < threads; tid++) {
      swapcontext(&scheduler, &fibres[tid].context);
      done += fibres[tid].done;
    }
    if (done == threads) return true;
    if (done != 0) return false;
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
