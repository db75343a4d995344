/* A peer of the network benchmark: conjugate gradients with Jacobi's preconditioner, one network
 * a thread at a time, nothing else. Nodes of a grid of `planes` x `rows` x `columns`; entry p of
 * an axis' conductance joins node p and the next along it, the last entry closes a ring and is
 * zero for open ends. `diagonal` is the leak with all conductances at the node. Stops at
 * r . z <= tol^2 r0 . z0. */
#include <stdlib.h>

typedef struct {
    int planes, rows, columns;
} Grid;

/* y -= the part of one axis between whole rows: `from` and `to` are a row and the next one. */
static void couple(int n, const float *restrict g, const float *restrict from,
                   const float *restrict to, float *restrict y_from, float *restrict y_to) {
    for (int j = 0; j < n; j++) y_from[j] -= g[j] * to[j];
    for (int j = 0; j < n; j++) y_to[j] -= g[j] * from[j];
}

static void apply(Grid grid, const float *const *g, const float *restrict diagonal,
                  const float *restrict v, float *restrict y) {
    const int n = grid.columns;
    const size_t plane = (size_t)grid.rows * n;
    for (int k = 0; k < grid.planes; k++) {
        for (int i = 0; i < grid.rows; i++) {
            const size_t at = k * plane + (size_t)i * n;
            const size_t above = k * plane + (size_t)((i + grid.rows - 1) % grid.rows) * n;
            const size_t below = k * plane + (size_t)((i + 1) % grid.rows) * n;
            const float *vr = v + at, *gr = g[2] + at, *d = diagonal + at;
            float *yr = y + at;
            if (grid.rows > 1) {
                const float *q = g[1] + at, *qm = g[1] + above, *u = v + below, *um = v + above;
                for (int j = 0; j < n; j++) yr[j] = d[j] * vr[j] - q[j] * u[j] - qm[j] * um[j];
            } else {
                for (int j = 0; j < n; j++) yr[j] = d[j] * vr[j];
            }
            for (int j = 0; j < n - 1; j++) yr[j + 1] -= gr[j] * vr[j];
            for (int j = 0; j < n - 1; j++) yr[j] -= gr[j] * vr[j + 1];
            if (n > 1) {
                yr[0] -= gr[n - 1] * vr[n - 1];
                yr[n - 1] -= gr[n - 1] * vr[0];
            }
        }
    }
    if (grid.planes > 1)
        for (int k = 0; k < grid.planes; k++) {
            const size_t at = k * plane, next = ((k + 1) % grid.planes) * plane;
            couple((int)plane, g[0] + at, v + at, v + next, y + at, y + next);
        }
}

static float dot(size_t n, const float *restrict a, const float *restrict b) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static int solve_one(Grid grid, const float *const *g, const float *diagonal, const float *source,
                     float *restrict x, int limit, float tol, float *work) {
    const size_t n = (size_t)grid.planes * grid.rows * grid.columns;
    float *restrict r = work, *restrict z = work + n, *restrict p = work + 2 * n;
    float *restrict ap = work + 3 * n, *restrict inverse = work + 4 * n;
    for (size_t i = 0; i < n; i++) {
        x[i] = 0;
        r[i] = source[i];
        inverse[i] = 1 / diagonal[i];
        z[i] = p[i] = r[i] * inverse[i];
    }
    float rz = dot(n, r, z);
    const float enough = tol * tol * rz;
    int k = 0;
    for (; k < limit && rz > enough && rz > 0; k++) {
        apply(grid, g, diagonal, p, ap);
        const float step = rz / dot(n, p, ap);
        for (size_t i = 0; i < n; i++) {
            x[i] += step * p[i];
            r[i] -= step * ap[i];
            z[i] = r[i] * inverse[i];
        }
        const float now = dot(n, r, z), share = now / rz;
        rz = now;
        for (size_t i = 0; i < n; i++) p[i] = z[i] + share * p[i];
    }
    return k;
}

/* Iterations of each network into `iterations`; 1 without the memory for it. */
int jacobi_cg(int networks, int planes, int rows, int columns, const float *g0, const float *g1,
              const float *g2, const float *diagonal, const float *source, float *v,
              int *iterations, int limit, float tol, int threads) {
    const Grid grid = {planes, rows, columns};
    const size_t n = (size_t)planes * rows * columns;
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        float *work = malloc(5 * n * sizeof(float));
        failed |= !work;
#pragma omp for schedule(dynamic, 1)
        for (int b = 0; b < networks; b++) {
            const size_t at = b * n;
            const float *g[3] = {g0 + at, g1 + at, g2 + at};
            if (work)
                iterations[b] = solve_one(grid, g, diagonal + at, source + at, v + at, limit, tol,
                                          work);
        }
        free(work);
    }
    return failed;
}
