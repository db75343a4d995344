/* Limited fluxes for one instruction set and size of numbers. */

#include <string.h>

#include "_kernel.h"
#include "carry.h"

enum { FIELDS = 12 }; /* of a sample, in the workspace */

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

/* The slopes s (axes, cells) of z, the harmonic means of the differences on both sides, and z half a
 * step on. The differences to the next cells are left in `next`, 0 behind walls. */
static void prepare(const struct carry_args *a, const REAL *restrict z, REAL *restrict next,
                    REAL *restrict s, REAL *restrict half) {
    const int64_t n = cells(a);
    memcpy(half, z, n * sizeof(REAL));
    for (int axis = 0; axis < CARRY_AXES; axis++, s += n, next += n) {
        const struct axis x = axis_at(a, axis);
        EACH_FACE(1, next[i] = j > i || x.ring ? z[j] - z[i] : 0;)
        EACH_FACE(1, const REAL both = next[i] * next[j];
                  s[j] = both > 0 ? 2 * both / (next[i] + next[j]) : 0;)
        for (int64_t i = 0; i < n; i++) half[i] -= speed(x, z[i]) * s[i] / 2;
    }
}

/* One step of a sample. */
static void step(const struct carry_args *a, const REAL *restrict z, REAL *restrict after,
                 REAL *restrict work) {
    const int64_t n = cells(a);
    REAL *restrict half = work, *restrict ahead = work + n, *s = work + 2 * n;
    prepare(a, z, s + CARRY_AXES * n, s, half);
    memcpy(after, z, n * sizeof(REAL));
    for (int axis = 0; axis < CARRY_AXES; axis++, s += n) {
        const struct axis x = axis_at(a, axis);
        const REAL *restrict slope = s;
        if (x.n == 1) continue;
        for (int64_t i = 0; i < n; i++) after[i] -= speed(x, half[i]) * slope[i];
        EACH_FACE(x.ring, const REAL front = half[i] + slope[i] / 2, back = half[j] - slope[j] / 2;
                  const REAL flow = speed(x, (front + back) / 2); const REAL jump = back - front;
                  after[i] -= (flow < 0 ? flow : 0) * jump; ahead[i] = (flow > 0 ? flow : 0) * jump;)
        EACH_FACE(x.ring, after[j] -= ahead[i];)
    }
}

/* The gradient of a sample before a step, from that behind it and the state z before it; gradients of
 * the speeds are added. */
static void step_back(const struct carry_args *a, const REAL *restrict z, REAL *restrict grad,
                      double *restrict grad_speeds, REAL *restrict work) {
    const int64_t n = cells(a);
    REAL *restrict half = work, *restrict of_half = work + n, *s = work + 2 * n;
    REAL *next = s + CARRY_AXES * n, *of_slopes = next + CARRY_AXES * n;
    REAL *restrict back_there =
        of_slopes + CARRY_AXES * n; /* later: what differences get from one side */
    prepare(a, z, next, s, half);
    memset(of_half, 0, n * sizeof(REAL));
    memset(of_slopes, 0, CARRY_AXES * n * sizeof(REAL));
    for (int axis = 0; axis < CARRY_AXES; axis++) {
        const struct axis x = axis_at(a, axis);
        const REAL *restrict slope = s + axis * n;
        REAL *restrict of_slope = of_slopes + axis * n;
        if (x.n == 1) continue;
        double first = 0, second = 0;
        memset(back_there, 0, n * sizeof(REAL));
        EACH_FACE(x.ring, const REAL front = half[i] + slope[i] / 2, back = half[j] - slope[j] / 2;
                  const REAL middle = (front + back) / 2, flow = speed(x, middle);
                  const REAL up = flow > 0   ? -grad[j]
                                  : flow < 0 ? -grad[i]
                                             : -(grad[i] + grad[j]) / 2;
                  const REAL of_flow = (back - front) * up, of_jump = flow * up;
                  const REAL of_middle = rise(x, middle) * of_flow / 2; first += of_flow;
                  second += of_flow * within(x, middle); of_half[i] += of_middle - of_jump;
                  of_slope[i] += (of_middle - of_jump) / 2; back_there[j] = of_middle + of_jump;)
        for (int64_t i = 0; i < n; i++) {
            const REAL of_speed = -grad[i] * slope[i];
            first += of_speed, second += of_speed * within(x, half[i]);
            of_slope[i] -= grad[i] * speed(x, half[i]) + back_there[i] / 2;
            of_half[i] += back_there[i] + of_speed * rise(x, half[i]);
        }
        grad_speeds[2 * axis] += first, grad_speeds[2 * axis + 1] += second;
    }
    for (int64_t i = 0; i < n; i++) grad[i] += of_half[i];
    for (int axis = 0; axis < CARRY_AXES; axis++) {
        const struct axis x = axis_at(a, axis);
        const REAL *restrict slope = s + axis * n;
        REAL *restrict of_slope = of_slopes + axis * n, *restrict change = next + axis * n;
        if (x.n == 1) continue;
        double first = 0, second = 0;
        for (int64_t i = 0; i < n; i++) {
            const REAL of_speed = -of_half[i] * slope[i] / 2;
            first += of_speed, second += of_speed * within(x, z[i]);
            grad[i] += of_speed * rise(x, z[i]);
            of_slope[i] -= of_half[i] * speed(x, z[i]) / 2;
        }
        grad_speeds[2 * axis] += first, grad_speeds[2 * axis + 1] += second;
        /* The slope of j is 2 l r / (l + r) for the differences l of the face before and r behind. */
        memset(half, 0, n * sizeof(REAL));
        EACH_FACE(1, const REAL l = change[i], r = change[j]; const int same = l * r > 0;
                  back_there[i] = same ? 2 * of_slope[j] * (r / (l + r)) * (r / (l + r)) : 0;
                  half[j] = same ? 2 * of_slope[j] * (l / (l + r)) * (l / (l + r)) : 0;)
        EACH_FACE(x.ring, grad[i] -= back_there[i] + half[i];)
        EACH_FACE(x.ring, grad[j] += back_there[i] + half[i];)
    }
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
