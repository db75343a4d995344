/* Limited fluxes for one instruction set and size of numbers. */

#include <string.h>

#include "_kernel.h"
#include "carry.h"

enum { FIELDS = 7 }; /* of a sample, in the workspace */

#define ABS(x) ((x) < 0 ? -(x) : (x))

static inline int64_t cells(const struct carry_args *a) { return a->grid[0] * a->grid[1] * a->grid[2]; }

static int64_t workspace(const struct carry_args *a) { return FIELDS * cells(a); }

/* One axis of a sample: cells (outer, n, inner), and the speed first + second * u. */
struct axis {
    int64_t outer, n, inner;
    int ring;
    REAL first, second, low, high;
};

/* Runs the code for each cell i and its next neighbour j; for the last cell and the first one, too,
 * where `around` is true. */
#define EACH_FACE(around, ...)                                        \
    for (int64_t outer = 0; outer < x.outer; outer++) {               \
        const int64_t start = outer * x.n * x.inner;                  \
        const int64_t last = start + (x.n - 1) * x.inner;             \
        for (int64_t i = start; i < last; i++) {                      \
            const int64_t j = i + x.inner;                            \
            __VA_ARGS__                                               \
        }                                                             \
        for (int64_t i = last; (around) && i < last + x.inner; i++) { \
            const int64_t j = i - (x.n - 1) * x.inner;                \
            __VA_ARGS__                                               \
        }                                                             \
    }

static inline struct axis axis_at(const struct carry_args *a, int axis) {
    struct axis x = {1,      a->grid[axis], 1, a->ring[axis], a->first[axis], a->second[axis],
                     a->low, a->high};
    for (int k = 0; k < CARRY_AXES; k++)
        if (k < axis)
            x.outer *= a->grid[k];
        else if (k > axis)
            x.inner *= a->grid[k];
    return x;
}

static inline REAL within(struct axis x, REAL u) { return u < x.low ? x.low : u > x.high ? x.high : u; }

static inline REAL speed(struct axis x, REAL u) { return x.first + x.second * within(x, u); }

/* Derivative of the speed. */
static inline REAL rise(struct axis x, REAL u) { return u >= x.low && u <= x.high ? x.second : 0; }

/* Van Leer's slopes of z along an axis (1977): the mean of the differences on both sides, limited by
 * twice the smaller one. The differences to the next cells are left in `next`, 0 behind walls. */
static void slopes(struct axis x, const REAL *restrict z, REAL *restrict next, REAL *restrict s) {
    EACH_FACE(1, next[i] = j > i || x.ring ? z[j] - z[i] : 0;)
    EACH_FACE(1, const REAL l = next[i], r = next[j], mean = (l + r) / 2;
              const REAL least = 2 * (ABS(l) < ABS(r) ? l : r);
              s[j] = l * r > 0 ? ABS(least) < ABS(mean) ? least : mean : 0;)
}

/* `after`: z and a part of the change by the fluxes of `at`. */
static void stage(const struct carry_args *a, const REAL *restrict at, const REAL *restrict z, REAL part,
                  REAL *restrict after, REAL *restrict work) {
    const int64_t n = cells(a);
    REAL *restrict ahead = work, *restrict next = work + n, *restrict s = work + 2 * n;
    memcpy(after, z, n * sizeof(REAL));
    for (int axis = 0; axis < CARRY_AXES; axis++) {
        const struct axis x = axis_at(a, axis);
        if (x.n == 1) continue;
        slopes(x, at, next, s);
        for (int64_t i = 0; i < n; i++) after[i] -= part * speed(x, at[i]) * s[i];
        EACH_FACE(x.ring, const REAL front = at[i] + s[i] / 2, back = at[j] - s[j] / 2;
                  const REAL flow = part * speed(x, (front + back) / 2); const REAL jump = back - front;
                  after[i] -= (flow < 0 ? flow : 0) * jump; ahead[i] = (flow > 0 ? flow : 0) * jump;)
        EACH_FACE(x.ring, after[j] -= ahead[i];)
    }
}

/* One step of a sample: the change by the fluxes at its middle. */
static void step(const struct carry_args *a, const REAL *restrict z, REAL *restrict after,
                 REAL *restrict work) {
    stage(a, z, z, (REAL)0.5, work, work + cells(a));
    stage(a, work, z, 1, after, work + cells(a));
}

/* Adds to `of_at` the gradient of a stage's state `at`, from that behind it; gradients of the speeds
 * are added, too. */
static void stage_back(const struct carry_args *a, const REAL *restrict at, REAL part,
                       const REAL *restrict grad, REAL *restrict of_at, double *restrict grad_speeds,
                       REAL *restrict work) {
    const int64_t n = cells(a);
    REAL *restrict next = work, *restrict s = work + n, *restrict of_s = work + 2 * n;
    REAL *restrict of_back = work + 3 * n, *restrict of_next = work + 4 * n;
    for (int axis = 0; axis < CARRY_AXES; axis++) {
        const struct axis x = axis_at(a, axis);
        if (x.n == 1) continue;
        double first = 0, second = 0;
        slopes(x, at, next, s);
        memset(of_s, 0, n * sizeof(REAL)), memset(of_back, 0, n * sizeof(REAL));
        EACH_FACE(x.ring, const REAL front = at[i] + s[i] / 2, back = at[j] - s[j] / 2;
                  const REAL middle = (front + back) / 2, flow = speed(x, middle);
                  const REAL up = part * (flow > 0   ? -grad[j]
                                          : flow < 0 ? -grad[i]
                                                     : -(grad[i] + grad[j]) / 2);
                  const REAL of_flow = (back - front) * up, of_jump = flow * up;
                  const REAL of_middle = rise(x, middle) * of_flow / 2; first += of_flow;
                  second += of_flow * within(x, middle); of_at[i] += of_middle - of_jump;
                  of_s[i] += (of_middle - of_jump) / 2; of_back[j] = of_middle + of_jump;)
        for (int64_t i = 0; i < n; i++) {
            const REAL of_speed = -part * grad[i] * s[i];
            first += of_speed, second += of_speed * within(x, at[i]);
            of_s[i] -= part * grad[i] * speed(x, at[i]) + of_back[i] / 2;
            of_at[i] += of_back[i] + of_speed * rise(x, at[i]);
        }
        grad_speeds[2 * axis] += first, grad_speeds[2 * axis + 1] += second;
        /* The slope of j depends on the differences l of the face before and r behind. */
        EACH_FACE(1, const REAL l = next[i], r = next[j], mean = (l + r) / 2;
                  const REAL least = 2 * (ABS(l) < ABS(r) ? l : r), of = l * r > 0 ? of_s[j] : 0;
                  const int bent = ABS(least) < ABS(mean), before = ABS(l) < ABS(r);
                  of_back[i] = of * (bent ? (REAL)(before ? 2 : 0) : (REAL)0.5);
                  of_next[j] = of * (bent ? (REAL)(before ? 0 : 2) : (REAL)0.5);)
        EACH_FACE(x.ring, of_at[i] -= of_back[i] + of_next[i];)
        EACH_FACE(x.ring, of_at[j] += of_back[i] + of_next[i];)
    }
}

/* The gradient of a sample before a step, from that behind it and the state z before it. */
static void step_back(const struct carry_args *a, const REAL *restrict z, REAL *restrict grad,
                      double *restrict grad_speeds, REAL *restrict work) {
    const int64_t n = cells(a);
    REAL *restrict middle = work, *restrict of_middle = work + n;
    stage(a, z, z, (REAL)0.5, middle, work + 2 * n);
    memset(of_middle, 0, n * sizeof(REAL));
    stage_back(a, middle, 1, grad, of_middle, grad_speeds, work + 2 * n);
    for (int64_t i = 0; i < n; i++) grad[i] += of_middle[i];
    stage_back(a, z, (REAL)0.5, of_middle, grad, grad_speeds, work + 2 * n);
}

/* The samples of a call in parallel: `sample` and its workspace, as REAL. */
#define EACH_SAMPLE(...)                                                                              \
    _Pragma("omp parallel for num_threads(a->threads) if (a->threads > 1)") for (int64_t sample = 0;  \
                                                                                 sample < a->batches; \
                                                                                 sample++) {          \
        REAL *work = (REAL *)a->workspace + thread_number() * workspace(a);                           \
        const int64_t n = cells(a), whole = a->batches * n;                                           \
        __VA_ARGS__                                                                                   \
    }

static void forward(const struct carry_args *a) {
    EACH_SAMPLE(REAL *z = (REAL *)a->states + sample * n;
                for (int64_t k = 0; k < a->steps; k++, z += whole) step(a, z, z + whole, work);)
}

static void backward(const struct carry_args *a) {
    EACH_SAMPLE(REAL *grad = (REAL *)a->grad + sample * n; for (int64_t k = a->steps - 1; k >= 0; k--)
                    step_back(a, (REAL *)a->states + k * whole + sample * n, grad,
                              a->grad_speeds + 2 * CARRY_AXES * sample, work);)
}

static void fastest(const struct carry_args *a) {
    const REAL *z = a->states;
    REAL most = 0;
    for (int64_t i = 0; i < a->batches * cells(a); i++) {
        REAL cells_a_step = 0;
        for (int axis = 0; axis < CARRY_AXES; axis++) {
            const REAL fast = speed(axis_at(a, axis), z[i]);
            cells_a_step += fast < 0 ? -fast : fast;
        }
        most = cells_a_step > most ? cells_a_step : most;
    }
    *a->fastest = most;
}

const struct carry_kernel KERNEL(carry) = {forward, backward, fastest, workspace, LANES};
