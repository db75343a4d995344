/* What an element of a front is, and what is done with it: with ROWS 0 it is one value of every network
 * of a group, a vector or, of complex numbers, two; with ROWS 1 one number, LANES of which are a vector
 * of a row. A unit is what blocks add up: PER elements of a row. `carried` is what substitution carries
 * up, a current of each lane, and `portion` an element for that, both of doubles but for complex numbers. */
#if COMPLEX
typedef struct {
    vec re, im;
} MODE(element);
typedef MODE(element) MODE(unit);
typedef MODE(element) MODE(carried);
typedef MODE(element) MODE(portion);
typedef vec MODE(scalar);
#define WIDEN(x) (x)
#define PER 1
#define QB (VECTOR_BYTES == 64 ? 4 : 2) /* rows and units that a block keeps in registers */
#define RB 2
#elif ROWS
typedef REAL MODE(element);
typedef vec MODE(unit);
typedef wide MODE(carried);
typedef double MODE(portion);
typedef REAL MODE(scalar);
#define WIDEN(x) splat(x)
#define PER LANES
#define QB 8
#define RB (VECTOR_BYTES == 64 ? 2 : 1)
#else
typedef vec MODE(element);
typedef vec MODE(unit);
typedef wide MODE(carried);
typedef wide MODE(portion);
typedef vec MODE(scalar);
#define WIDEN(x) (x)
#define PER 1
#define QB (VECTOR_BYTES == 64 ? 4 : 2)
#define RB 4
#endif
#define element MODE(element)
#define unit MODE(unit)
#define carried MODE(carried)
#define portion MODE(portion)
#define scalar MODE(scalar)
#define plus MODE(plus)
#define times MODE(times)
#define plus_product MODE(plus_product)
#define scaled MODE(scaled)

#if COMPLEX
INLINE element plus(element x, element y) { return (element){x.re + y.re, x.im + y.im}; }

INLINE element plus_product(element c, element s, element x) {
    c.re += s.re * x.re, c.im += s.re * x.im;
    c.re -= s.im * x.im, c.im += s.im * x.re;
    return c;
}

INLINE element times(element s, element x) { return plus_product((element){}, s, x); }

INLINE element scaled(element x, scalar scale) { return (element){x.re * scale, x.im * scale}; }

/* Whether a pivot has no inverse. */
INLINE int MODE(lacks)(const element *inverse, int lane) {
    return inverse->re[lane] == 0 && inverse->im[lane] == 0;
}

INLINE vec magnitude(element x) { /* |re| + |im| */
    return pick(x.re < 0, -x.re, x.re) + pick(x.im < 0, -x.im, x.im);
}
#else
INLINE element plus(element x, element y) { return x + y; }

INLINE unit plus_product(unit c, unit s, unit x) { return c + s * x; }

INLINE unit times(unit s, unit x) { return s * x; }

INLINE element scaled(element x, scalar scale) { return x * scale; }

INLINE int MODE(lacks)(const element *inverse, int lane) { return ((const REAL *)inverse)[lane] == 0; }
#endif

/* Vectors of a row of a front, whose last column is ground. */
static inline int64_t MODE(vectors_of)(int64_t front) { return (front + PER) / PER; }

static int64_t MODE(front_bytes)(const struct direct_args *a) {
    return aligned((a->largest_front + PAD) * (MODE(vectors_of)(a->largest_front) + RB) *
                   (int64_t)sizeof(unit));
}

/* What the elimination of tiles takes: a thread's. */
static int64_t MODE(tiles_bytes)(const struct direct_args *a) {
#if ROWS
    return tiles_bytes(a);
#else
    (void)a;
    return 0;
#endif
}

#include "factorize.h"
#include "substitute.h"
#if COMPLEX
#include "refine.h"
#else
#include "solve.h"
#include "invert.h"
#endif

/* Threads that solve for sources of one network after they have eliminated it together. */
static int MODE(solving)(const struct direct_args *a) {
    const int64_t chunk = MODE(chunk_of)(a), chunks = (a->sources + chunk - 1) / chunk;
    return a->call == DIRECT_FACTORIZE && a->parts ? (int)least(a->threads, chunks) : 1;
}

/* Bytes of the workspace of one thread, or of all threads that share a network. */
static int64_t MODE(own_bytes)(const struct direct_args *a) {
    const int64_t solve = a->source ? MODE(solving)(a) * MODE(solve_bytes)(a) : 0;
    const int64_t fronts = (a->parts ? a->threads : 1) * (MODE(front_bytes)(a) + MODE(tiles_bytes)(a)) +
                           MODE(waiting_bytes)(a);
    switch (a->call) {
    case DIRECT_FACTORIZE:
    case DIRECT_ONCE: return MODE(fields_bytes)(a) + (fronts > solve ? fronts : solve);
#if !COMPLEX
    case DIRECT_INVERT: return MODE(invert_bytes)(a);
#endif
    default: return MODE(fields_bytes)(a) + solve;
    }
}

static int64_t MODE(workspace)(const struct direct_args *a) {
    return MODE(own_bytes)(a) * (a->call == DIRECT_FACTORIZE && a->parts ? 1 : a->threads);
}

static void MODE(run)(const struct direct_args *a) {
    const int64_t networks = a->batches * a->channels;
    const int64_t items = ROWS ? networks : (networks + LANES - 1) / LANES;
    const int64_t each = MODE(own_bytes)(a), fields = MODE(fields_bytes)(a);
    char *const workspace = a->workspace;
    const int factorizes = a->call == DIRECT_FACTORIZE || a->call == DIRECT_ONCE;
    /* A fresh allocation costs as much as the elimination, page by page of 4 KiB. */
    if (a->call == DIRECT_FACTORIZE)
        ask_for_large_pages(a->shares, items * a->item_shares * (int64_t)sizeof(element));
    if (a->call == DIRECT_FACTORIZE && a->parts) {
        for (int64_t i = 0; i < items; i++) {
            struct item item = item_at(a, i);
            MODE(pack_fields)(a, &item, workspace);
            MODE(begin)(a, &item);
            MODE(factorize)(a, &item, workspace + fields);
            if (!a->source) continue;
            const int threads = MODE(solving)(a);
            if (threads < 2) { /* they may share tiles, but not within another parallel region */
                MODE(solve_item)(a, &item, 0, a->sources, workspace + fields);
                continue;
            }
            const int64_t chunk = MODE(chunk_of)(a);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
            for (int64_t s = 0; s < a->sources; s += chunk)
                MODE(solve_item)(a, &item, s, least(s + chunk, a->sources),
                                 workspace + fields + thread_number() * MODE(solve_bytes)(a));
        }
        return;
    }
    const int64_t chunk = factorizes || a->call == DIRECT_INVERT ? a->sources : MODE(chunk_of)(a);
    const int64_t chunks = chunk ? (a->sources + chunk - 1) / chunk : 1;
#pragma omp parallel for schedule(dynamic, 1) \
    num_threads(a->threads) if (a->threads > 1 && items * chunks > 1)
    for (int64_t i = 0; i < items * chunks; i++) {
        char *const own = workspace + thread_number() * each;
        struct item item = item_at(a, i / chunks);
        const int64_t source = i % chunks * chunk;
#if !COMPLEX
        if (a->call == DIRECT_INVERT) {
            MODE(invert_item)(a, &item, own);
            continue;
        }
#endif
        if (factorizes || a->residual) MODE(pack_fields)(a, &item, own);
        if (factorizes) MODE(begin)(a, &item);
        if (factorizes) MODE(factorize)(a, &item, own + fields);
        if (!a->source) continue;
        MODE(solve_item)(a, &item, source, least(source + chunk, a->sources), own + fields);
    }
}

#undef element
#undef unit
#undef carried
#undef portion
#undef scalar
#undef plus
#undef times
#undef plus_product
#undef scaled
#undef WIDEN
#undef PER
#undef QB
#undef RB
