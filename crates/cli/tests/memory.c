// Preloaded into the tool by tests/cli/memory.rs: once `main` has returned, writes all memory that the process can write
// to the file that MEMORY_DUMP names. Other threads still live then, and so do their stacks and what was freed. The file
// that MEMORY_STATUS names gets /proc/self/status, which has the most memory that the process ever had.
//
// The file: the length of /proc/self/maps and its text, then every page that is not all zeros after its address.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };

// Static, and each page is copied out alone: this code must not cover the stack that it is to show.
static char maps[1 << 18];
static struct { uint64_t address; unsigned char bytes[PAGE]; } page;
static const unsigned char zeros[PAGE];

static void put(int to, const void *bytes, size_t length) {
    if (write(to, bytes, length) != (ssize_t)length) {
        _exit(98);
    }
}

__attribute__((destructor)) static void status(void) {
    const char *name = getenv("MEMORY_STATUS");
    if (!name) {
        return;
    }
    int to = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600), from = open("/proc/self/status", O_RDONLY);
    if (to < 0 || from < 0) {
        _exit(99);
    }
    for (ssize_t got; (got = read(from, page.bytes, PAGE)) > 0;) {
        put(to, page.bytes, got);
    }
}

__attribute__((destructor)) static void dump(void) {
    const char *name = getenv("MEMORY_DUMP");
    if (!name) {
        return;
    }
    int to = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int from = open("/proc/self/maps", O_RDONLY), memory = open("/proc/self/mem", O_RDONLY);
    uint64_t length = 0;
    for (ssize_t got; (got = read(from, maps + length, sizeof maps - 1 - length)) > 0;) {
        length += got;
    }
    if (to < 0 || memory < 0 || length == 0 || length == sizeof maps - 1) {
        _exit(99);
    }
    put(to, &length, sizeof length);
    put(to, maps, length);
    for (char *line = maps; *line; line = strchr(line, '\n') + 1) {
        char *rest;
        uintptr_t start = strtoull(line, &rest, 16), end = strtoull(rest + 1, &rest, 16);
        if (rest[1] != 'r' || rest[2] != 'w') {
            continue;
        }
        for (uintptr_t at = start; at < end; at += PAGE) {
            int is_own = at + PAGE > (uintptr_t)&page && at < (uintptr_t)(&page + 1);
            // A thread may end meanwhile, and its stack go.
            if (!is_own && pread(memory, page.bytes, PAGE, at) == PAGE && memcmp(page.bytes, zeros, PAGE)) {
                page.address = at;
                put(to, &page, sizeof page);
            }
        }
    }
    memset(&page, 0, sizeof page);
}
