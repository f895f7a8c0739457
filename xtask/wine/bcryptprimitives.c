/* Rust's standard library asks this library of Windows for randomness. Wine 8 has none, but knows an older name of the function. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID to, ULONG bytes);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T bytes) {
    return bytes <= 0xffffffff && SystemFunction036(to, (ULONG)bytes);
}
