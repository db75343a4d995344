/* Elimination of one node after the other, in the form of the star-mesh law: a node with the
 * conductances g to its later neighbours and the leak l goes, and with t = sum g + l
 *     g_qr += g_q g_r / t,   l_q += g_q l / t,   s_q += g_q s / t,   v = s / t + sum g_q v_q / t.
 * No difference is taken, so no contrast and no small leak loses digits. Included once per
 * form. */

APART void FORM(factorize)(const struct FORM(solver) * s) {
    const struct FORM(level) *l = s->level + s->count - 1;
    const struct FORM(factors) *f = &s->bottom;
    const struct grid *grid = &l->grid;
    const int64_t band = f->order.band, all = f->order.nodes;
    ELEMENT *leak = f->s; /* free until a source comes */
    memset(f->mesh, 0, (size_t)(all * band) * sizeof(ELEMENT));
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
        ELEMENT *mesh = f->mesh + i * band;
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        ELEMENT sum = leak[i];
        for (int64_t q = 0; q < later; q++) sum += mesh[q];
        const ELEMENT inverse = f->inverse[i] = FORM(inverse)(sum), lost = leak[i] * inverse;
        for (int64_t q = 0; q < later; q++) {
            const ELEMENT share = mesh[q] * inverse;
            ELEMENT *row = mesh + (q + 1) * band - q - 1; /* of node i + q + 1, from this one's q */
            leak[i + q + 1] += mesh[q] * lost;
            if (FORM(any)(share))
                _Pragma("GCC ivdep") for (int64_t r = q + 1; r < later; r++) row[r] += share * mesh[r];
        }
        ALONG(later) mesh[x] *= inverse;
    }
}

/* x of the coarsest level for its r. */
APART void FORM(solve_exactly)(const struct FORM(solver) * s) {
    const struct FORM(level) *l = s->level + s->count - 1;
    const struct FORM(factors) *f = &s->bottom;
    const struct grid *grid = &l->grid;
    const int64_t band = f->order.band, all = f->order.nodes;
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2]; x++)
            f->s[place(grid, &f->order, (int64_t[]){z, y, x})] = l->r[ROW(grid) + x];
    for (int64_t i = 0; i < all; i++) {
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        const ELEMENT source = f->s[i], *mesh = f->mesh + i * band;
        ELEMENT *to = f->s + i + 1;
        ALONG(later) to[x] += mesh[x] * source;
    }
    for (int64_t i = all - 1; i >= 0; i--) {
        const int64_t later = all - 1 - i < band ? all - 1 - i : band;
        const ELEMENT *mesh = f->mesh + i * band, *from = f->s + i + 1;
        vec sum = {};
        int64_t q = 0;
        for (; q + WIDTH <= later; q += WIDTH) sum += FORM(load)(mesh + q) * FORM(load)(from + q);
        ELEMENT v = f->s[i] * f->inverse[i] + FORM(total)(sum);
        for (; q < later; q++) v += mesh[q] * from[q];
        f->s[i] = v;
    }
    EACH_ROW (grid)
        for (int64_t x = 0; x < grid->n[2]; x++)
            l->x[ROW(grid) + x] = f->s[place(grid, &f->order, (int64_t[]){z, y, x})];
}
