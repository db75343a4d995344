/* Entries of the inverse where the matrix has its own: from the last region to the first, each
 * front's entries follow from those of its boundary, which its parent's front contains:
 *     Z_kq = sum over j > k of h_kj Z_jq,   Z_kk = 1 / t_k + sum over j > k of h_kj Z_kj,
 * h being shares. Shares and entries are positive: nothing cancels.
 *
 * K. Takahashi, J. Fagan, M.-S. Chen, "Formation of a sparse bus impedance matrix and its
 * application to short circuit study", PICA (1973). */

/* The entries of a region's front, all of the symmetric matrix. */
APART void MODE(invert_front)(vec *front, int64_t n, int64_t f, const element *shares,
                              const element *inverse) {
    const int64_t vectors = MODE(vectors_of)(f), stride = vectors * PER;
    element *z = (element *)front;
    for (int64_t k = n - 1; k >= 0; k--) {
        const element *h = shares + share_index(f, k, 0);
        const int64_t first = (k + 1) / PER;
        vec *row = front + k * vectors;
        int64_t c = first;
        for (; c < vectors; c += 4) {
            vec sum[4] = {};
            if (c + 4 <= vectors) {
                for (int64_t q = k + 1; q < f; q++) {
                    const vec s = WIDEN(h[q]);
                    UNROLL for (int j = 0; j < 4; j++) sum[j] += s * front[q * vectors + c + j];
                }
                UNROLL for (int j = 0; j < 4; j++) row[c + j] = sum[j];
            } else {
                for (; c < vectors; c++) {
                    vec one = {};
                    for (int64_t q = k + 1; q < f; q++) one += WIDEN(h[q]) * front[q * vectors + c];
                    row[c] = one;
                }
            }
        }
        element own = inverse[k];
        for (int64_t q = k + 1; q < f; q++) {
            own += h[q] * z[k * stride + q];
            z[q * stride + k] = z[k * stride + q];
        }
        z[k * stride + k] = own;
    }
}

/* Regions from the last one on. `top`: where the entries that wait end; those of a region come after those
 * of its boundary. */
static void MODE(invert_regions)(const struct direct_args *a, const struct item *item,
                                 const element *all_shares, const element *inverse, vec scale, vec *front,
                                 element *top, char *tiles) {
    element *z = (element *)front;
    int64_t group = a->groups;
    for (int64_t r = a->regions - 1; r >= 0; r--) {
        const int64_t n = a->pivots[r], width = a->width[r], f = n + width;
        const int64_t stride = MODE(vectors_of)(f) * PER, first = a->first[r];
        top -= width * (width + 1) / 2;
        const element *given = top;
#if ROWS
        if (!n) {
            if (group && r == a->tile_region[a->group_first[group] - 1]) group--;
            invert_tile(a, item, group, r, given, scale, tiles);
            continue;
        }
#else
        (void)tiles, (void)group;
#endif
        memset(front, 0, (size_t)(f * MODE(vectors_of)(f)) * sizeof(vec));
        for (int64_t i = 0; i < width; i++)
            for (int64_t j = i; j < width; j++, given++)
                z[(n + i) * stride + n + j] = z[(n + j) * stride + n + i] = *given;
        MODE(invert_front)(front, n, f, all_shares + a->share_at[r], inverse + first);
#if ROWS
#define ENTRY(i, j) (splat(z[(i) * stride + (j)]) * scale)
#else
#define ENTRY(i, j) (z[(i) * stride + (j)] * scale)
#endif
        for (int64_t i = 0; i < n; i++)
            store(item, (REAL *)a->diagonal, item->at, a->node[first + i] * a->channels, ENTRY(i, i));
        for (int64_t e = a->edge_at[r]; a->entry[0] && e < a->edge_at[r + 1]; e++) {
            const int64_t axis = axis_of(a, a->edge[e]);
            const int64_t entry = a->edge[e] - axis * a->entries;
            store(item, (REAL *)a->entry[axis], item->edges_at, entry * a->channels,
                  ENTRY(a->row[e], a->column[e]));
        }
#undef ENTRY
        for (int side = 0; side < 2; side++) {
            const int64_t half = a->kids[2 * r + side];
            if (half < 0) continue;
            const int32_t *place = a->place + a->boundary_at[half];
            for (int64_t i = 0; i < a->width[half]; i++)
                for (int64_t j = i; j < a->width[half]; j++) *top++ = z[place[i] * stride + place[j]];
        }
    }
}

static int64_t MODE(invert_bytes)(const struct direct_args *a) {
    return MODE(front_bytes)(a) + MODE(waiting_bytes)(a) + MODE(tiles_bytes)(a);
}

static void MODE(invert_item)(const struct direct_args *a, const struct item *item, char *workspace) {
    const int64_t index = item->index;
    vec scale = {};
    for (int lane = 0; lane < item->width; lane++) {
        const int64_t network = index * (ROWS ? 1 : LANES) + lane;
        scale[lane] =
            a->status[network] == DIRECT_NOT_FINITE ? (REAL)NAN : ((const REAL *)a->scale)[network];
    }
    char *const waiting = workspace + MODE(front_bytes)(a);
    MODE(invert_regions)(a, item, (const element *)a->shares + index * a->item_shares,
                         (const element *)a->inverse + index * a->nodes, scale, (vec *)workspace,
                         (element *)waiting, waiting + MODE(waiting_bytes)(a));
}
