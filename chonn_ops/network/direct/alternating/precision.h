/* What one precision of the factors exports. */

static int64_t NAME(workspace)(const struct alternating_args *a) {
    const int64_t factors = NAME(front_bytes)(a) + NAME(waiting_bytes)(a);
    const int64_t solve = a->source ? NAME(solve_bytes)(a) : 0;
    const int64_t each = a->call == ALTERNATING_SOLVE || factors < solve ? solve : factors;
    return a->threads * (NAME(fields_bytes)(a) + each);
}

static void NAME(run)(const struct alternating_args *a) {
    const int64_t items = (a->batches * a->channels + LANES - 1) / LANES;
    const int64_t each = NAME(workspace)(a) / a->threads;
    /* A fresh allocation costs as much as the elimination, page by page of 4 KiB. */
    if (a->call == ALTERNATING_FACTORIZE)
        ask_for_large_pages(a->shares, items * a->item_shares * (int64_t)sizeof(number));
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads) if (a->threads > 1)
    for (int64_t i = 0; i < items; i++) {
        char *own = (char *)a->workspace + thread_number() * each;
        struct NAME(item) item = NAME(item_at)(a, i);
        NAME(pack_fields)(a, &item, own);
        own += NAME(fields_bytes)(a);
        if (a->call != ALTERNATING_SOLVE) NAME(factorize_item)(a, &item, own);
        if (!a->source) continue;
        for (int64_t source = 0; source < a->sources; source++) NAME(solve_source)(a, &item, source, own);
    }
}

#undef vec
#undef mask
#undef number
#undef half
#undef doubles
#undef wide
#undef wide_number
#undef LANES
