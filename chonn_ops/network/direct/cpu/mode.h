/* What an element of a front is: with ROWS 0 a vector, one value of every network of a group; with
 * ROWS 1 one number, LANES of which are a vector of a row. Included twice per precision. */
#if ROWS
typedef REAL MODE(element);
#define WIDEN(x) NAME(splat)(x)
#define PER LANES /* elements a vector of a front's row */
#define QB 8      /* rows and vectors that a block keeps in registers */
#define RB (VECTOR_BYTES == 64 ? 2 : 1)
#else
typedef vec MODE(element);
#define WIDEN(x) (x)
#define PER 1
#define QB (VECTOR_BYTES == 64 ? 4 : 2)
#define RB 4
#endif
#define element MODE(element)

/* Vectors of a row of a front, whose last column is ground. */
static inline int64_t MODE(vectors)(int64_t front) { return (front + PER) / PER; }

static int64_t MODE(front_bytes)(const struct direct_args *a) {
    return aligned((a->largest_front + PAD) * (MODE(vectors)(a->largest_front) + RB) *
                   (int64_t)sizeof(vec));
}

#include "factorize.h"
#include "solve.h"
#include "invert.h"

static int64_t MODE(workspace)(const struct direct_args *a) {
    const int64_t threads = a->threads;
    switch (a->call) {
    case DIRECT_ONCE:
        return threads * (MODE(front_bytes)(a) + MODE(waiting_bytes)(a) + MODE(solve_bytes)(a));
    case DIRECT_FACTORIZE:
        return a->parts ? threads * MODE(front_bytes)(a) + MODE(waiting_bytes)(a)
                        : threads * (MODE(front_bytes)(a) + MODE(waiting_bytes)(a));
    case DIRECT_INVERT:
        return threads * (MODE(front_bytes)(a) + MODE(waiting_bytes)(a));
    default:
        return threads * MODE(solve_bytes)(a);
    }
}

static void MODE(run)(const struct direct_args *a) {
    const int64_t networks = a->batches * a->channels;
    const int64_t items = ROWS ? networks : (networks + LANES - 1) / LANES;
    char *workspace = a->workspace;
    /* A fresh allocation costs as much as the elimination, page by page of 4 KiB. */
    if (a->call == DIRECT_FACTORIZE)
        ask_for_large_pages(a->shares, items * a->item_shares * (int64_t)sizeof(element));
    if (a->call == DIRECT_FACTORIZE && a->parts) {
        for (int64_t i = 0; i < items; i++) MODE(factorize_parts)(a, i, workspace);
        return;
    }
    const int64_t each = MODE(workspace)(a) / a->threads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads) if (a->threads > 1)
    for (int64_t i = 0; i < items; i++) {
        char *own = workspace + thread_number() * each;
        switch (a->call) {
        case DIRECT_FACTORIZE: MODE(factorize_item)(a, i, own); break;
        case DIRECT_ONCE:
            MODE(factorize_item)(a, i, own);
            MODE(solve_item)(a, i, own);
            break;
        case DIRECT_INVERT: MODE(invert_item)(a, i, own); break;
        default: MODE(solve_item)(a, i, own);
        }
    }
}

#undef element
#undef WIDEN
#undef PER
#undef QB
#undef RB
