/* Elimination of one node after the other, in the form of the star-mesh law: a node with the
 * conductances g to its later neighbours and the leak l goes, and with t = sum g + l
 *     g_qr += g_q g_r / t,   l_q += g_q l / t,   s_q += g_q s / t,   v = s / t + sum g_q v_q / t.
 * No difference is taken, so no contrast and no small leak loses digits. Included once per
 * precision. */

struct NAME(factors) {
    struct order order;
    vec *mesh; /* (nodes, band): first conductances to later nodes, then their shares of t */
    vec *inverse, *s; /* 1 / t; source, then potential */
};

APART void NAME(factorize)(const struct NAME(level) *l, const struct NAME(factors) *f) {
    const struct grid *grid = &l->grid;
    const int64_t band = f->order.band, all = f->order.nodes;
    vec *leak = f->s; /* free until a source comes */
    memset(f->mesh, 0, (size_t)(all * band) * sizeof(vec));
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2]; x++) {
            const int64_t at[AXES] = {z, y, x}, p = ROW(grid) + x;
            leak[place(grid, &f->order, at)] = l->leak[p];
            for (int o = 0; o < grid->steps; o++) {
                const int64_t entry = mesh_entry(grid, &f->order, at, o);
                if (entry >= 0) f->mesh[entry] += l->edge[o][p];
            }
        }
    for (int64_t i = 0; i < all; i++) {
        vec *mesh = f->mesh + i * band;
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        vec sum = leak[i];
        for (int64_t q = 0; q < later; q++) sum += mesh[q];
        const vec inverse = f->inverse[i] = NAME(inverse)(sum);
        const vec lost = leak[i] * inverse;
        for (int64_t q = 0; q < later; q++) {
            const vec share = mesh[q] * inverse;
            vec *row = mesh + (q + 1) * band - q - 1; /* of node i + q + 1, from this one's q */
            leak[i + q + 1] += mesh[q] * lost;
            for (int64_t r = q + 1; r < later; r++) row[r] += share * mesh[r];
        }
        for (int64_t q = 0; q < later; q++) mesh[q] *= inverse;
    }
}

/* Solve for the source f->s, which becomes the potential. */
APART void NAME(substitute)(const struct NAME(factors) *f) {
    const int64_t band = f->order.band, all = f->order.nodes;
    for (int64_t i = 0; i < all; i++) {
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        const vec s = f->s[i];
        for (int64_t q = 0; q < later; q++) f->s[i + q + 1] += f->mesh[i * band + q] * s;
    }
    for (int64_t i = all - 1; i >= 0; i--) {
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        vec v = f->s[i] * f->inverse[i];
        for (int64_t q = 0; q < later; q++) v += f->mesh[i * band + q] * f->s[i + q + 1];
        f->s[i] = v;
    }
}

/* Solve a level exactly: its x for its r. */
static void NAME(solve_exactly)(const struct NAME(level) *l, const struct NAME(factors) *f) {
    const struct grid *grid = &l->grid;
    for (int back = 0; back < 2; back++) {
        if (back) NAME(substitute)(f);
        EACH_ROW (grid)
            for (int64_t x = 0; x < grid->n[2]; x++) {
                const int64_t at[AXES] = {z, y, x}, p = ROW(grid) + x;
                vec *s = f->s + place(grid, &f->order, at);
                if (back)
                    l->x[p] = *s;
                else
                    *s = l->r[p];
            }
    }
}
