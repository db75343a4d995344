/* Factors and fronts, for real and for complex networks alike. */
#ifndef CHONN_FRONTS_H
#define CHONN_FRONTS_H

#include <stdint.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum {
    PANEL = 8,        /* pivots that are eliminated one by one before later rows see them */
    PAD = DIRECT_PAD, /* elements behind factors and fronts that whole blocks may touch */
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows k of a front's factors lie one behind the other, each from column k + 1 on: where column q
 * of row k is. */
static inline int64_t share_index(int64_t front, int64_t k, int64_t q) {
    return k * front - k * (k + 1) / 2 + q - k - 1;
}

static inline int64_t aligned(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

static inline void ask_for_large_pages(void *at, int64_t bytes) {
#ifdef __linux__
    const uintptr_t page = 4096, first = ((uintptr_t)at + page - 1) & ~(page - 1);
    if (bytes >= (int64_t)4 << 20) madvise((void *)first, (size_t)(bytes - (int64_t)page), MADV_HUGEPAGE);
#else
    (void)at, (void)bytes;
#endif
}

#endif
