// The function that tests call: it runs a kernel by its number.
#pragma once
#define CASE(number, kernel) case number: run = [](const void* a) { kernel(*(const Args*)a); }; break;
// 0 if the kernel ran, 1 if there is none of that number, 2 if its threads met no common barrier, 3 if the arguments
// have another size.
#define HOST_ENTRY(cases) \
  extern "C" int NAME(uint32_t number, uint32_t blocks, uint32_t threads, const Args* args, size_t size) { \
    if (size != sizeof(Args)) return 3; \
    void (*run)(const void*) = nullptr; \
    switch (number) { \
      cases \
      default: return 1; \
    } \
    return shim::launch(run, args, blocks, threads) ? 0 : 2; \
  }
