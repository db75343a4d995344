// The scan of the lines of a field, channels-last, forward and backward.
//
// A warp owns CPW channels of a line, and each of its lanes S of the states of one channel. It
// walks the line step by step, with the states in registers, and loads the rows of the next tile of
// steps while it walks through this one. A block has GROUPS warps with channels of one line. The
// sum over states (an output) is a sum over the lanes of a channel, the sum over channels (a
// gradient of b or c) one over the other lanes.
//
// With z = delta decay and phi(z) = (1 - exp(-z)) / z a step is
//     v += phi(z) (delta u b - z v),
// and phi is a short polynomial where z is small. The warp votes once for 8 steps whether all its z
// are; otherwise it takes the general path with exponentials.
//
// Compile-time settings:
//   STREAM  dtype of u, delta, b, c and their gradients, as DTYPE_* in chonn_ops/_library.py
//   NP      states, rounded up to a power of two, at most 128
//   WHOLE   1: there are exactly NP states
//   NESTED  1: steps are two nested loops, or offsets need 64 bits
//   WALKS   walks whose mean is the result
//   GROUPS  warps of a block
//   CK      steps between checkpoints, and of a tile of the backward; a multiple of 8
// Without EMULATED this is CUDA C++; tests/shared/emulation.cpp compiles it for the CPU.

#define FLOAT64 (STREAM == 1)
#define BFLOAT16 (STREAM == 2)
#define FLOAT16 (STREAM == 3)
#define NARROW (BFLOAT16 || FLOAT16)
#define S (NP < 4 ? NP : 4)  // states of a lane
#define LPC (NP / S)    // lanes of a channel
#define CPW (32 / LPC)  // channels of a warp; lane = (group of states) * CPW + channel
#define TF (NARROW && NP < 64 ? 32 : 16)  // steps of a tile of the forward
#define GF 8            // steps of the forward between two sums over the lanes of a channel
#ifdef EMULATED
#define ARCHITECTURE 900
#else
#define ARCHITECTURE __CUDA_ARCH__
#endif
#define SEVERAL (WALKS > 1)
#define SHARE ((R)1 / WALKS)
// Tensor cores sum over the channels; TF32 needs compute capability 8.
#define USE_MMA (NP == 16 && !FLOAT64 && ARCHITECTURE >= 800)
// Blocks that a processor should hold: more states or digits take more registers.
#define RESIDENT (FLOAT64 || NP >= 64 ? 1 : 3)
#define BOUNDS __launch_bounds__(32 * GROUPS, RESIDENT)
#define VECTOR (FLOAT64 ? 2 : 4)  // elements that are loaded at once
#define VX (CPW < VECTOR ? CPW : VECTOR)
#define VN (NP < VECTOR ? NP : VECTOR)

#if FLOAT64
typedef double R;
#else
typedef float R;  // states, sums, decay
#endif
#if FLOAT64
typedef double T;
#elif NARROW
typedef unsigned short T;
#else
typedef float T;
#endif
#if NESTED
typedef long long Offset;
#else
typedef int Offset;
#endif

#ifndef EMULATED
#define DEV __device__ __forceinline__
#define SHARED extern __shared__ __align__(16) R shared[];
#define EVERY_LANE 0xffffffffu
DEV R exchange(R x, int mask) { return __shfl_xor_sync(EVERY_LANE, x, mask); }
DEV bool every(bool p) { return __all_sync(EVERY_LANE, p); }
DEV void sync_warp() { __syncwarp(); }
DEV void sync_block() { __syncthreads(); }
DEV float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV double exp2_of(double x) { return exp2(x); }
DEV float as_float(unsigned x) { return __uint_as_float(x); }
DEV unsigned as_word(float x) { return __float_as_uint(x); }
DEV unsigned short to_float16(float x) {
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
DEV float from_float16(unsigned short x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
#if ARCHITECTURE >= 800
DEV unsigned short to_bfloat16(float x) {
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
// The sum starts from zero with `first`.
DEV void mma(float *c, const float *a, float b0, float b1, bool first) {
    if (first) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
            : "r"(as_word(a[0])), "r"(as_word(a[1])), "r"(as_word(a[2])), "r"(as_word(a[3])),
              "r"(as_word(b0)), "r"(as_word(b1)), "f"(0.0f));
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(as_word(a[0])), "r"(as_word(a[1])), "r"(as_word(a[2])), "r"(as_word(a[3])),
              "r"(as_word(b0)), "r"(as_word(b1)));
    }
}
#else
DEV unsigned short to_bfloat16(float x) {
    const unsigned w = as_word(x);
    return x != x ? 0x7fff : (w + 0x7fff + ((w >> 16) & 1)) >> 16;
}
#endif
template <class V>
DEV V fetch(const V *p) {
    return __ldg(p);
}
#endif

#if BFLOAT16
DEV R widen(T x) { return as_float((unsigned)x << 16); }
DEV T narrow(R x) { return to_bfloat16(x); }
#elif FLOAT16
DEV R widen(T x) { return from_float16(x); }
DEV T narrow(R x) { return to_float16(x); }
#else
DEV R widen(T x) { return x; }
DEV T narrow(R x) { return x; }
#endif

// Bits of `flags`. Bits 8 to 15 are zero, which the compiler does not know: see Pick.
#define ROWS_ALIGNED 1    // rows of channels can be loaded in vectors of VX
#define STATES_ALIGNED 2  // rows of states can be loaded in vectors of VN, and N is NP
#define ADD 4             // add to the results of earlier walks
#define UNFINISHED 8  // the results go to sum_y, or sum_u and sum_delta: a later walk adds to them
#define PERIODIC 16

// The arguments of all kernels; chonn_ops/scan/cuda/__init__.py packs them in this order. B batch
// elements, P positions, D channels, N states; the batch elements' `lines` lines of `length` steps.
struct Args {
    const T *u, *delta, *b, *c, *gy;  // (B, P, D or N), with the strides below
    const R *decay, *d;  // (D, N), (D,) or null
    const R *start;  // (B lines, D, N) or null: states before the first step; backward: gradients of
    // those after the last step
    R *end;  // the other end's, or null
    T *y, *gu, *gdelta, *gb, *gc;  // (B, P, D or N), contiguous
    R *sum_y, *sum_u, *sum_delta;  // (B, P, D): what walks add up
    R *kept;  // (B lines, ceil(length / CK), D, N) checkpoints, or null
    R *gdecay, *gd;  // (D, N), (D,) or null
    R *part_bc, *part_decay, *part_d;  // (blocks, 2, B P, NP), (all_lines, D, NP), (all_lines, D)
    long long u_batch, delta_batch, b_batch, c_batch, gy_batch;
    long long u_row, delta_row, b_row, c_row, gy_row;
    int line_inner, line_inner_stride, line_outer_stride, lines;
    int step_inner, step_inner_stride, step_outer_stride, length, reverse;
    int B, P, D, N;
    int blocks;  // blocks that share a line's channels
    int first_line, all_lines;  // rows of part_decay: the walk's first, and all
    int flags;
};

// ---- phi(z) = (1 - exp(-z)) / z and psi(z) = (z - 1 + exp(-z)) / z^2
// The polynomials are minimax fits in the relative error up to the limits, the series for float64
// Taylor's.
#define LOG2_E ((R)1.4426950408889634)
#if FLOAT64
#define PHI_LIMIT 0.5
#define PSI_LIMIT 0.5
#define PHI_TERMS 1  // as many as phi_small has would take too many registers
DEV R phi_term(int) { return 1; }
DEV R phi_small(R z) {
    R sum = 1;
#pragma unroll
    for (int k = 17; k > 1; --k) sum = fma(sum * z, -1.0 / k, 1.0);
    return sum;
}
DEV R psi_small(R z) {
    R sum = 1;
#pragma unroll
    for (int k = 18; k > 2; --k) sum = fma(sum * z, -1.0 / k, 1.0);
    return sum / 2;
}
#elif NARROW
#define PHI_LIMIT 1.0f
#define PSI_LIMIT 1.0f
#define PHI_TERMS 4  // relative error 5.5e-5
DEV R phi_term(int k) {
    const R terms[] = {9.999455464e-01f, -4.983625733e-01f, 1.585530940e-01f, -2.804992794e-02f};
    return terms[k];
}
DEV R psi_small(R z) {  // 1.8e-5
    R p = fmaf(z, -6.009045023e-03f, 4.028123057e-02f);
    p = fmaf(p, z, -1.663903847e-01f);
    return fmaf(p, z, 4.999910708e-01f);
}
#else
#define PHI_LIMIT 0.5f
#define PSI_LIMIT 0.75f
#define PHI_TERMS 5  // 7.7e-8
DEV R phi_term(int k) {
    const R terms[] = {9.999999227e-01f, -4.999924984e-01f, 1.665481511e-01f, -4.100127750e-02f,
                       6.771036690e-03f};
    return terms[k];
}
DEV R psi_small(R z) {  // 1.6e-7
    R p = fmaf(z, 1.065715669e-03f, -8.129618690e-03f);
    p = fmaf(p, z, 4.161264837e-02f);
    p = fmaf(p, z, -1.666615660e-01f);
    return fmaf(p, z, 4.999999216e-01f);
}
#endif
#if !FLOAT64
DEV R phi_small(R z) {
    R sum = phi_term(PHI_TERMS - 1);
#pragma unroll
    for (int k = PHI_TERMS - 2; k >= 0; --k) sum = fma(sum, z, phi_term(k));
    return sum;
}
#endif
// Decay rates below this are raised to it, as in chonn_ops/scan/arguments.py.
#define SLOWEST ((R)(FLOAT64 ? 1e-290 : 1e-30))
// Powers of decay rates up to this, and of steps up to this, are numbers.
#define FASTEST ((R)1e9)
DEV R kept_part(R z) { return exp2_of(z * -LOG2_E); }  // exp(-z)
DEV R size_of(R z) { return z < 0 ? -z : z; }

// 1 - exp(-z); phi(-a) = exp(a) phi(a).
DEV R lost_part(R z) {
    const R a = size_of(z), keep = kept_part(z);
    return a < PHI_LIMIT ? z * phi_small(a) * (z < 0 ? keep : (R)1) : (R)1 - keep;
}

// ---- where a line's steps are
struct Path {
    int batch, length;
    Offset origin, step;
#if NESTED
    int inner, reverse;
    Offset outer_stride;
#endif
    // Position of a step in scan order.
    DEV Offset at(int t) const {
#if NESTED
        const int i = reverse ? length - 1 - t : t;
        return origin + i / inner * outer_stride + i % inner * step;
#else
        return origin + t * step;
#endif
    }
};
DEV Path path_of(const Args &p, int line) {
    Path q;
    q.batch = line / p.lines;
    const int within = line % p.lines;
    q.length = p.length;
    q.origin = (Offset)(within / p.line_inner) * p.line_outer_stride +
               (Offset)(within % p.line_inner) * p.line_inner_stride;
    q.step = p.step_inner_stride;
#if NESTED
    q.inner = p.step_inner;
    q.reverse = p.reverse;
    q.outer_stride = p.step_outer_stride;
#else
    if (p.reverse) {
        q.origin += (p.length - 1) * q.step;
        q.step = -q.step;
    }
#endif
    return q;
}
// A batch element's rows, from a column on.
struct Source {
    const T *at;
    Offset row;
};
DEV Source source_of(const T *base, long long batch_stride, long long row, int batch, int column) {
    Source s;
    s.at = base + batch * batch_stride + column;
    s.row = (Offset)row;
    return s;
}

// ---- vectors
template <int BYTES>
struct Word;
template <>
struct Word<2> {
    typedef unsigned short type;
};
template <>
struct Word<4> {
    typedef unsigned type;
};
template <>
struct Word<8> {
    typedef uint2 type;
};
template <>
struct Word<16> {
    typedef uint4 type;
};
// V numbers that are loaded and stored at once.
template <class X, int V>
union Raw {
    typename Word<V * sizeof(X)>::type word;
    X x[V];
};
// M numbers, a power of two of them, in words of at most 16 bytes.
#define EACH_WORD                                         \
    enum { V = M * sizeof(R) < 16 ? M : 16 / sizeof(R) }; \
    typedef Raw<R, V> Words;                              \
    _Pragma("unroll") for (int i = 0; i < M; i += V)
template <int M>
DEV void read_vector(R *f, const R *s) {
    EACH_WORD {
        Words q;
        q.word = ((const Words *)(s + i))->word;
#pragma unroll
        for (int j = 0; j < V; ++j) f[i + j] = q.x[j];
    }
}
template <int M>
DEV void write_vector(R *s, const R *f) {
    EACH_WORD {
        Words q;
#pragma unroll
        for (int j = 0; j < V; ++j) q.x[j] = f[i + j];
        ((Words *)(s + i))->word = q.word;
    }
}

// The rows of STEPS steps, W columns wide, spread over the warp in vectors of V. Rows beyond
// `rows` and columns beyond `width` are zero: a step of zeros changes nothing.
template <int STEPS, int W, int V>
struct Tile {
    enum { COUNT = STEPS * W / V, EACH = (COUNT + 31) / 32, ACROSS = W / V };
    Raw<T, V> r[EACH];
    DEV void load(const Source &s, const Path &q, int t, int rows, int width, bool aligned, int lane) {
#if !NESTED
        if (ACROSS <= 32 && aligned && rows >= STEPS && width >= W) {
            const Offset hop = q.step * s.row;
            const T *first = s.at + (q.at(t) * s.row + lane / ACROSS * hop + lane % ACROSS * V);
#pragma unroll
            for (int i = 0; i < EACH; ++i)
                if (COUNT % 32 == 0 || i * 32 + lane < COUNT)
                    r[i].word = fetch(
                        (const typename Word<V * sizeof(T)>::type *)(first + i * (32 / ACROSS) * hop));
            return;
        }
#endif
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int at = i * 32 + lane, row = at / ACROSS, column = at % ACROSS * V;
            const bool inside = at < COUNT && row < rows;
#pragma unroll
            for (int j = 0; j < V; ++j) r[i].x[j] = 0;
            if (!inside) continue;
            const T *from = s.at + (q.at(t + row) * s.row + column);
            if (aligned) {
                if (column < width) r[i].word = fetch((const typename Word<V * sizeof(T)>::type *)from);
            } else {
#pragma unroll
                for (int j = 0; j < V; ++j)
                    if (column + j < width) r[i].x[j] = fetch(from + j);
            }
        }
    }
    DEV void store(R *s, int lane, R factor) const {  // s[STEPS][W]
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            R f[V];
#pragma unroll
            for (int j = 0; j < V; ++j) f[j] = widen(r[i].x[j]) * factor;
            if (COUNT % 32 == 0 || i * 32 + lane < COUNT) write_vector<V>(s + (i * 32 + lane) * V, f);
        }
    }
};
template <int STEPS, int W, int V>
DEV void store_pairs(const Tile<STEPS, W, V> &a, const Tile<STEPS, W, V> &b, R *s, int lane, R factor_b) {
#pragma unroll
    for (int i = 0; i < Tile<STEPS, W, V>::EACH; ++i) {  // s[STEPS][W][2]
        R f[2 * V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
            f[2 * j] = widen(a.r[i].x[j]);
            f[2 * j + 1] = widen(b.r[i].x[j]) * factor_b;
        }
        if (Tile<STEPS, W, V>::COUNT % 32 == 0 || i * 32 + lane < Tile<STEPS, W, V>::COUNT)
            write_vector<2 * V>(s + (i * 32 + lane) * 2 * V, f);
    }
}

// Sums V values over LANES lanes, which are LOW apart, both powers of two. While V > 1 each bit of the
// lane's number halves the values: the lane keeps those whose number has the bit's place set as in the
// lane, of which `first_sum` is the first.
template <int V, int LOW, int LANES>
DEV void sum_lanes(R *x, int lane) {
    if constexpr (LANES > 1 && V == 1) {
        x[0] += exchange(x[0], LOW);
        sum_lanes<1, LOW * 2, LANES / 2>(x, lane);
    } else if constexpr (LANES > 1) {
        const bool high = lane & LOW;
#pragma unroll
        for (int i = 0; i < V / 2; ++i) {
            const R keep = high ? x[i + V / 2] : x[i], send = high ? x[i] : x[i + V / 2];
            x[i] = keep + exchange(send, LOW);
        }
        sum_lanes<V / 2, LOW * 2, LANES / 2>(x, lane);
    }
}
template <int V, int LOW, int LANES>
DEV int first_sum(int lane) {
    if constexpr (LANES == 1 || V == 1)
        return 0;
    else
        return (lane & LOW ? V / 2 : 0) + first_sum<V / 2, LOW * 2, LANES / 2>(lane);
}

// ---- the lane's place, and its channel's decay
struct Lane {
    int lane, channel, group, c0;  // group of states; first channel of the warp
    bool live;  // whether its channel exists
    R rate[S], per[S], fastest;  // decay, 1 / decay
};
DEV Lane lane_of(const Args &p, int c0) {
    Lane l;
    l.lane = threadIdx.x & 31;
    l.channel = l.lane % CPW;
    l.group = l.lane / CPW;
    l.c0 = c0;
    l.live = c0 + l.channel < p.D;
    l.fastest = FLOAT64 ? 0 : 1 / FASTEST;
#pragma unroll
    for (int s = 0; s < S; ++s) {
        const int n = l.group * S + s;
        const bool there = l.live && n < p.N;
        const R decay = there ? p.decay[(long long)(c0 + l.channel) * p.N + n] : (R)0;
        const R slow = decay < 0 ? -SLOWEST : SLOWEST;
        l.rate[s] = size_of(decay) < SLOWEST ? slow : decay;
        l.per[s] = (R)1 / l.rate[s];
        // The polynomials are for z >= 0.
        const bool general = l.rate[s] < 0 || (!FLOAT64 && l.rate[s] > FASTEST);
        l.fastest = general ? (R)as_float(0x7f800000) : fmax(l.fastest, l.rate[s]);
    }
    return l;
}
// phi(delta decay) in powers of delta where z is small.
struct Series {
    R term[PHI_TERMS][S];  // the first is unused
};
DEV void make_series(const Lane &l, Series &series) {
#pragma unroll
    for (int s = 0; s < S; ++s) {
        R power = 1;
#pragma unroll
        for (int k = 1; k < PHI_TERMS; ++k) power *= l.rate[s], series.term[k][s] = power * phi_term(k);
    }
}

// Where the states of the lane are in a contiguous (.., D, N) tensor.
DEV long long states_at(const Args &p, const Lane &l, long long row) {
    return (row * p.D + l.c0 + l.channel) * p.N + l.group * S;
}
// They are zero where `from` is null.
DEV void load_states(const Args &p, const Lane &l, const R *from, R *v) {
#pragma unroll
    for (int s = 0; s < S; ++s) v[s] = from && l.live && l.group * S + s < p.N ? from[s] : (R)0;
}
DEV void store_states(const Args &p, const Lane &l, R *to, const R *v) {
    if (!l.live) return;
    if (WHOLE) {
        write_vector<S>(to, v);
        return;
    }
#pragma unroll
    for (int s = 0; s < S; ++s)
        if (l.group * S + s < p.N) to[s] = v[s];
}

// The state that one period reproduces, of that which it makes from rest in so much time.
DEV void close_ring(const Args &p, const Lane &l, R time, R *v) {
#pragma unroll
    for (int s = 0; s < S; ++s) {
        const bool there = l.live && l.group * S + s < p.N;  // NaN if no time passes
        v[s] = there ? v[s] / lost_part(time * l.rate[s]) : (R)0;
    }
}

// What the states of a channel share in a step.
struct Step {
    R delta, u, flow;  // flow = delta u
};

// The lane's state `s` a step later: exp(-z) v + phi(z) delta b u. Where z is small nothing cancels in
// the form v + phi (delta b u - z v); where it is not, that would leave the rounding of a large v that
// the step forgets.
template <bool SMALL>
DEV R relaxed(R v, const Lane &l, const Series &series, int s, const Step &x, R b) {
    if (SMALL && !FLOAT64) {  // delta phi(z), whose powers of delta the lane's states share
        R sum = series.term[PHI_TERMS - 1][s];
#pragma unroll
        for (int k = PHI_TERMS - 2; k > 0; --k) sum = fma(sum, x.delta, series.term[k][s]);
        sum = fma(sum, x.delta * x.delta, x.delta * phi_term(0));
        return fma(sum, fma(-l.rate[s], v, x.u * b), v);
    }
    const R z = x.delta * l.rate[s];
    if (SMALL) return fma(phi_small(z), fma(-z, v, x.flow * b), v);
    const R a = size_of(z), keep = kept_part(z), phi = phi_small(a) * (z < 0 ? keep : (R)1);
    const R few = fma(phi, fma(-z, v, x.flow * b), v);
    // The product of phi and delta, which may be infinite.
    const R weight = ((R)1 - keep) * l.per[s];
    return a < PHI_LIMIT ? few : fma(keep, v, weight * (x.u * b));
}

// Where a lane leaves results of a step, in rows of D: those of the walk, or what several walks add
// up. If steps are nested, those of the field's first position.
struct Place {
    T *result;
    R *sum;
    DEV void move(const Args &p, const Path &q, int steps) {
        if (NESTED) return;
        result += steps * q.step * p.D;
        if (SEVERAL) sum += steps * q.step * p.D;
    }
    // Writes the value of step t + i, where this place is at step t.
    DEV void leave(const Args &p, const Path &q, int t, int i, R value) const {
        const Offset to = NESTED ? q.at(t + i) * p.D : i * q.step * p.D;
        if (SEVERAL && p.flags & ADD) value += sum[to];
        if (SEVERAL && p.flags & UNFINISHED)
            sum[to] = value;
        else
            result[to] = narrow(value);
    }
};
DEV Place place_of(const Args &p, const Lane &l, const Path &q, T *result, R *sum, int t) {
    const long long first = (long long)q.batch * p.P * p.D + l.c0 + l.channel;
    const long long at = NESTED ? first : first + q.at(t) * p.D;
    Place to;
    to.result = result + at;
    to.sum = sum + at;
    return to;
}

// ================================================================ forward
#define F_SIZE (TF * CPW * 2 + TF * NP * 2)  // elements of shared memory of a warp

template <bool SMALL>
DEV void forward_steps(R *v, const Lane &l, const Series &series, const R *dl, const R *uu, const R *bs,
                       const R *cs, R *acc) {
#pragma unroll
    for (int j = 0; j < GF; ++j) {
        R bb[S], cc[S], out = 0;
        const Step x = {dl[j], uu[j], dl[j] * uu[j]};
        read_vector<S>(bb, bs + j * NP);
        read_vector<S>(cc, cs + j * NP);
#pragma unroll
        for (int s = 0; s < S; ++s) {
            v[s] = relaxed<SMALL>(v[s], l, series, s, x, bb[s]);
            out = s == 0 ? cc[s] * v[s] : fma(cc[s], v[s], out);
        }
        acc[j] = out;
    }
}

// Walk through a line. With `written`, write the outputs and, if wanted, checkpoints. Returns the sum
// of the deltas.
DEV R forward_walk(const Args &p, const Lane &l, const Path &q, int line, R *mine, R *v, bool written) {
    typedef Tile<TF, CPW, VX> Rows;
    typedef Tile<TF, NP, VN> States;
    const int lane = l.lane, width = p.D - l.c0;
    const bool rows_aligned = p.flags & ROWS_ALIGNED, states_aligned = p.flags & STATES_ALIGNED;
    const R skip = l.live && p.d ? SHARE * p.d[l.c0 + l.channel] : (R)0;
    R *xs = mine, *bs = xs + TF * CPW * 2, *cs = bs + TF * NP;
    enum { LEFT = LPC >= GF ? 1 : GF / LPC };  // outputs of GF steps that a lane writes
    const int at = first_sum<GF, CPW, LPC>(lane);
    const bool writes = written && l.live && (LPC <= GF || l.group < GF);
    Place y = place_of(p, l, q, p.y, p.sum_y, at);
    const Source u = source_of(p.u, p.u_batch, p.u_row, q.batch, l.c0);
    const Source delta = source_of(p.delta, p.delta_batch, p.delta_row, q.batch, l.c0);
    const Source b = source_of(p.b, p.b_batch, p.b_row, q.batch, 0);
    const Source c = source_of(p.c, p.c_batch, p.c_row, q.batch, 0);
    const int chunks = (p.length + CK - 1) / CK;
    R *kept = p.kept + states_at(p, l, (long long)line * chunks);
    R time = 0;
    const int unwanted = written && p.kept ? 0 : 1;  // if 1, no g | unwanted is a multiple of CK
    Series series;
    make_series(l, series);
    Rows tu, td;
    States tb, tc;
#define LOAD(t)                                                \
    {                                                          \
        const int rows = p.length - (t);                       \
        td.load(delta, q, t, rows, width, rows_aligned, lane); \
        tu.load(u, q, t, rows, width, rows_aligned, lane);     \
        tb.load(b, q, t, rows, p.N, states_aligned, lane);     \
        tc.load(c, q, t, rows, p.N, states_aligned, lane);     \
    }
    LOAD(0)
    for (int t0 = 0; t0 < p.length; t0 += TF) {
        sync_warp();
        store_pairs(td, tu, xs, lane, (R)1);
        tb.store(bs, lane, (R)1);
        tc.store(cs, lane, (R)1);
        sync_warp();
        if (t0 + TF < p.length) LOAD(t0 + TF)
        const int steps = min(TF, p.length - t0);
        const R *xg = xs + l.channel * 2, *bg = bs + l.group * S;
#pragma unroll 1
        for (int g = 0; g < steps; g += GF, xg += GF * CPW * 2, bg += GF * NP) {
            if ((g | unwanted) % CK == 0) {
                store_states(p, l, kept, v);
                kept += (Offset)p.D * p.N;
            }
            R dl[GF], uu[GF], acc[GF], most = 0;
#pragma unroll
            for (int j = 0; j < GF; ++j) {
                R pair[2];
                read_vector<2>(pair, xg + j * CPW * 2);
                dl[j] = pair[0];
                uu[j] = pair[1];
                most = fmax(most, dl[j]);
            }
            if (every(most * l.fastest <= PHI_LIMIT))
                forward_steps<true>(v, l, series, dl, uu, bg, bg + TF * NP, acc);
            else
                forward_steps<false>(v, l, series, dl, uu, bg, bg + TF * NP, acc);
#pragma unroll
            for (int j = 0; j < GF; ++j) time += dl[j];
            sum_lanes<GF, CPW, LPC>(acc, lane);
            if (writes) {
#pragma unroll
                for (int i = 0; i < LEFT; ++i) {
                    const R own_u = LPC == 1 ? uu[i] : xg[(at + i) * CPW * 2 + 1];
                    const R out = fma(skip, own_u, acc[i] * SHARE);
                    if (g + at + i < steps) y.leave(p, q, t0 + g + at, i, out);
                }
            }
            y.move(p, q, GF);
        }
    }
#undef LOAD
    return time;
}

// One block: one line, the channels of its warps.
extern "C" __global__ void BOUNDS scan_forward(const __grid_constant__ Args p) {
    SHARED
    const int warp = threadIdx.x >> 5, line = blockIdx.x / p.blocks, block = blockIdx.x % p.blocks;
    const Lane l = lane_of(p, (block * GROUPS + warp) * CPW);
    const Path q = path_of(p, line);
    const long long own = states_at(p, l, line);
    R v[S];
    load_states(p, l, p.start ? p.start + own : 0, v);
#pragma unroll 1
    for (int walk = p.flags & PERIODIC ? 0 : 1; walk < 2; ++walk) {
        const R time = forward_walk(p, l, q, line, shared + warp * F_SIZE, v, walk == 1);
        if (walk == 0) close_ring(p, l, time, v);
    }
    if (p.end) store_states(p, l, p.end + own, v);
}

// ================================================================ backward
// A warp's shared memory: rows of delta and u in pairs, gy, b, c, the states of the tile, and its
// sums over channels for the gradients of b and c, twice where another warp may still read them. And
// the lanes' series, which would take registers from the adjoint.
#define OUTPUTS (GROUPS == 1 ? 1 : 2)
#define B_X 0
#define B_G (B_X + CK * CPW * 2)
#define B_B (B_G + CK * CPW)
#define B_C (B_B + CK * NP)
#define B_V (B_C + CK * NP)
#define B_O (B_V + CK * S * 32)
#define B_S (B_O + OUTPUTS * 2 * CK * NP)
#define B_SIZE (B_S + (PHI_TERMS - 1) * 32 * S)
#define G (USE_MMA ? 4 : S >= 4 ? 2 : 4)  // steps between two sums over lanes

// One step of the adjoint: gradients of b and c, and the lane's parts of those of u (su, over delta
// where all z are small) and delta (sd). `slow` adds up minus the gradient of the decay.
template <bool SMALL>
DEV void backward_step(const Lane &l, R delta, R u, R gy, const R *bb, const R *cc, const R *before, R *v,
                       R *carried, R *slow, R *gb, R *gc, R &su, R &sd) {
    const R du = delta * u;
    R sb = 0, sr = 0;
    su = 0;
#pragma unroll
    for (int s = 0; s < S; ++s) {
        const R z = delta * l.rate[s], g = fma(cc[s], gy, carried[s]);
        const R a = SMALL ? z : size_of(z), psi = psi_small(a);
        R phi = fma(-a, psi, (R)1), fall = phi - psi, cb, of_rate;  // fall = (phi - exp(-z)) / z
        gc[s] = gy * v[s];
        if (SMALL) {
            const R weighed = g * phi;
            carried[s] = fma(-z, weighed, g);
            gb[s] = weighed * du;
            su = s == 0 ? weighed * bb[s] : fma(weighed, bb[s], su);
            cb = carried[s] * before[s], of_rate = fma(du, (g * bb[s]) * fall, cb);
            slow[s] = fma(delta, of_rate, slow[s]);
        } else {
            const R keep = kept_part(z), large = ((R)1 - keep) * l.per[s];
            const bool few = a < PSI_LIMIT;
            if (z < 0) phi *= keep, fall = keep * psi;  // fall(-a) = exp(a) psi(a)
            carried[s] = few ? fma(-z, g * phi, g) : keep * g;
            const R weighed = g * (few ? delta * phi : large);
            gb[s] = weighed * u;
            su = s == 0 ? weighed * bb[s] : fma(weighed, bb[s], su);
            cb = carried[s] * before[s], of_rate = few ? fma(du, (g * bb[s]) * fall, cb) : cb;
            // delta^2 fall, without powers of large z.
            const R slope = few ? (R)0 : (large - delta * keep) * l.per[s];
            slow[s] = fma(delta, of_rate, fma(slope, (g * bb[s]) * u, slow[s]));
        }
        if (!SMALL) sb = s == 0 ? carried[s] * bb[s] : fma(carried[s], bb[s], sb);
        const R part = SMALL ? of_rate : cb;
        sr = s == 0 ? l.rate[s] * part : fma(l.rate[s], part, sr);
        v[s] = before[s];
    }
    // By z (phi - psi) = phi - exp(-z), which cancels where z is large, the gradient of delta follows
    // from those of u and of the decay.
    sd = fma(u, SMALL ? su : sb, -sr);
}

// Walk through 8 steps and store the state before each.
template <bool SMALL>
DEV void recompute(R *v, const Lane &l, const R *terms, const R *dl, const R *xs, const R *bs, R *vs) {
    Series series;
    if (SMALL) {
#pragma unroll
        for (int k = 1; k < PHI_TERMS; ++k) read_vector<S>(series.term[k], terms + (k - 1) * 32 * S);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        R bb[S];
        const R u = xs[j * CPW * 2 + 1];
        const Step x = {dl[j], u, dl[j] * u};
        read_vector<S>(bb, bs + j * NP);
        write_vector<S>(vs + j * 32 * S, v);
#pragma unroll
        for (int s = 0; s < S; ++s) v[s] = relaxed<SMALL>(v[s], l, series, s, x, bb[s]);
    }
}

// 1 or 0 by the row of the lane: which of 16 values an A fragment adds to which row of the sums.
struct Pick {
#if USE_MMA
    R x[16];
#endif
};
DEV Pick pick_of(const Args &p, int lane) {
    Pick pick;
#if USE_MMA
    // Zeros from `flags`, and a shuffle: the compiler then keeps each fragment in registers of its
    // own, as the instruction wants them.
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        const R one = (lane >> 2) == j / 2 ? 1.0f : 0.0f;
        pick.x[j] = exchange(j % 2 == 0 ? one : as_float((unsigned)p.flags & (0x100u << j / 2)), 1);
    }
#endif
    return pick;
}
#if USE_MMA
// Rows of `sum`: 4 states of the gradient of b, then of c; columns: pairs of half the channels.
DEV void add_rows(R *sum, const Pick &pick, const R *gb, const R *gc) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const R b0 = j < 2 ? gb[2 * j] : gc[2 * j - 4], b1 = j < 2 ? gb[2 * j + 1] : gc[2 * j - 3];
        const R *a = pick.x + 4 * j;
#if NARROW
        mma(sum, a, b0, b1, j == 0);
#else  // TF32 has 11 bits of digits: the upper and the lower half of each number
        const R h0 = as_float(as_word(b0) & 0xffffe000u), h1 = as_float(as_word(b1) & 0xffffe000u);
        mma(sum, a, h0, h1, j == 0);
        mma(sum, a, b0 - h0, b1 - h1, false);
#endif
    }
}
#endif

// The rows of the tile that one step of the backward reads, and where a lane leaves gradients:
// of u or of delta if the channel has several lanes, of steps from `own` on.
struct Rows {
    const R *x, *g, *b, *v;
    R *out;
    Place gu, gdelta;
    int own;
};

// G steps of the adjoint, the last first: steps t .. t + G - 1, of which those of the line exist.
template <bool SMALL>
DEV void backward_group(const Args &p, const Lane &l, const Path &q, const Rows &r, int t, R skip,
                        const Pick &pick, R *v, R *carried, R *slow, R &gd) {
    R sums[2 * G];
#if USE_MMA
    R sum[G][4];
#else
    R all[2 * G * S];
#endif
#pragma unroll
    for (int j = G - 1; j >= 0; --j) {
        R bb[S], cc[S], before[S], gb[S], gc[S], x[2], su, sd;
        const R gy = r.g[j * CPW];
        read_vector<2>(x, r.x + j * CPW * 2);
        read_vector<S>(bb, r.b + j * NP);
        read_vector<S>(cc, r.b + j * NP + (B_C - B_B));
        read_vector<S>(before, r.v + j * 32 * S);
        backward_step<SMALL>(l, x[0], x[1], gy, bb, cc, before, v, carried, slow, gb, gc, su, sd);
        gd = fma(gy, x[1], gd);
        sums[j] = SMALL ? fma(su, x[0], skip * gy) : fma(skip, gy, su);
        sums[G + j] = sd;
#if USE_MMA
        add_rows(sum[j], pick, gb, gc);
#else
#pragma unroll
        for (int s = 0; s < S; ++s) all[j * S + s] = gb[s], all[(G + j) * S + s] = gc[s];
#endif
    }
#if USE_MMA
    {
        const int row = l.lane >> 2;  // of `sum`; the lane's columns belong to one group of states
        R *o = r.out + (row >> 2) * CK * NP + (l.lane & 3) * 4 + (row & 3);
#pragma unroll
        for (int j = 0; j < G; ++j) o[j * NP] = sum[j][0] + sum[j][1];
    }
#else
    {
        sum_lanes<2 * G * S, 1, CPW>(all, l.lane);
        const int at = first_sum<2 * G * S, 1, CPW>(l.lane);
        enum { VALUES = 2 * G * S, LEFT = CPW >= VALUES ? 1 : VALUES / CPW };
        if (CPW <= VALUES || l.channel < VALUES) {
#pragma unroll
            for (int i = 0; i < LEFT; ++i) {
                const int w = at + i, kind = w / (G * S), j = w / S % G, s = w % S;
                r.out[kind * CK * NP + j * NP + l.group * S + s] = all[i];
            }
        }
    }
#endif
    sum_lanes<2 * G, CPW, LPC>(sums, l.lane);
    enum { LEFT = LPC >= 2 * G ? 1 : 2 * G / LPC };
    if (!l.live || (LPC > 2 * G && l.group >= 2 * G)) return;
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
        const int step = t + (LPC > 1 ? r.own + i : i % G);
        if (step >= p.length) continue;
        (LPC > 1 || i < G ? r.gu : r.gdelta).leave(p, q, t + r.own, step - t - r.own, sums[i]);
    }
}

// The adjoint that a line's first step leaves, from rest after the last; returns the sum of the deltas.
DEV R adjoint_walk(const Args &p, const Lane &l, const Path &q, const Source &delta, const Source &c,
                   const Source &gy, R *mine, R *carried) {
    Tile<CK, CPW, VX> td, tg;
    Tile<CK, NP, VN> tc;
    R time = 0;
#pragma unroll
    for (int s = 0; s < S; ++s) carried[s] = 0;
    for (int t0 = (p.length - 1) / CK * CK; t0 >= 0; t0 -= CK) {
        const int rows = p.length - t0, width = p.D - l.c0;
        td.load(delta, q, t0, rows, width, p.flags & ROWS_ALIGNED, l.lane);
        tg.load(gy, q, t0, rows, width, p.flags & ROWS_ALIGNED, l.lane);
        tc.load(c, q, t0, rows, p.N, p.flags & STATES_ALIGNED, l.lane);
        sync_warp();
        store_pairs(td, tg, mine + B_X, l.lane, SHARE);
        tc.store(mine + B_C, l.lane, (R)1);
        sync_warp();
#pragma unroll 4
        for (int t = CK - 1; t >= 0; --t) {
            R x[2], cc[S];
            read_vector<2>(x, mine + B_X + (t * CPW + l.channel) * 2);
            read_vector<S>(cc, mine + B_C + t * NP + l.group * S);
            time += x[0];
#pragma unroll
            for (int s = 0; s < S; ++s)
                carried[s] = kept_part(x[0] * l.rate[s]) * fma(cc[s], x[1], carried[s]);
        }
    }
    return time;
}

// Add VN elements of a block's sums over channels to the gradients of b and c at a step.
DEV void leave_part(const Args &p, const Path &q, int block, int kind, int t, int n, R *sum) {
    const long long rows = (long long)p.B * p.P, row = (long long)q.batch * p.P + q.at(t);
    R *to = p.part_bc + ((block * 2 + kind) * rows + row) * NP + n;
    if (p.flags & ADD) {
        R earlier[VN];
        read_vector<VN>(earlier, to);
#pragma unroll
        for (int i = 0; i < VN; ++i) sum[i] += earlier[i];
    }
    write_vector<VN>(to, sum);
}

// One block: one line, the channels of its warps.
extern "C" __global__ void BOUNDS scan_backward(const __grid_constant__ Args p) {
    SHARED
    typedef Tile<CK, CPW, VX> RowTile;
    typedef Tile<CK, NP, VN> StateTile;
    const int warp = threadIdx.x >> 5, line = blockIdx.x / p.blocks, block = blockIdx.x % p.blocks;
    const Lane l = lane_of(p, (block * GROUPS + warp) * CPW);
    const int lane = l.lane, width = p.D - l.c0;
    const bool rows_aligned = p.flags & ROWS_ALIGNED, states_aligned = p.flags & STATES_ALIGNED;
    const R skip = l.group == 0 && l.live && p.d ? p.d[l.c0 + l.channel] : (R)0;
    const int chunks = (p.length + CK - 1) / CK;
    const Pick pick = pick_of(p, lane);
    R *mine = shared + warp * B_SIZE, *terms = mine + B_S + lane * S;
    R v[S], carried[S], slow[S], start[S], gd = 0;
    Series series;
    make_series(l, series);
#pragma unroll
    for (int k = 1; k < PHI_TERMS; ++k) write_vector<S>(terms + (k - 1) * 32 * S, series.term[k]);
#pragma unroll
    for (int s = 0; s < S; ++s) slow[s] = start[s] = 0;
    RowTile tu, td, tg;
    StateTile tb, tc;

    const Path q = path_of(p, line);
    const Source u = source_of(p.u, p.u_batch, p.u_row, q.batch, l.c0);
    const Source delta = source_of(p.delta, p.delta_batch, p.delta_row, q.batch, l.c0);
    const Source gy = source_of(p.gy, p.gy_batch, p.gy_row, q.batch, l.c0);
    const Source b = source_of(p.b, p.b_batch, p.b_row, q.batch, 0);
    const Source c = source_of(p.c, p.c_batch, p.c_row, q.batch, 0);
    const long long own = states_at(p, l, line);
    load_states(p, l, p.start ? p.start + own : 0, carried);
    if (p.flags & PERIODIC) {
        const R time = adjoint_walk(p, l, q, delta, c, gy, mine, v);
#pragma unroll
        for (int s = 0; s < S; ++s) carried[s] += v[s];
        close_ring(p, l, time, carried);
    }

    Rows r;
    const int at = LPC > 1 ? first_sum<2 * G, CPW, LPC>(lane) : 0;
    r.own = at % G;
    const R *kept = p.kept + states_at(p, l, (long long)line * chunks);
#define LOAD(t)                                                \
    {                                                          \
        const int rows = p.length - (t);                       \
        td.load(delta, q, t, rows, width, rows_aligned, lane); \
        tu.load(u, q, t, rows, width, rows_aligned, lane);     \
        tg.load(gy, q, t, rows, width, rows_aligned, lane);    \
        tb.load(b, q, t, rows, p.N, states_aligned, lane);     \
        tc.load(c, q, t, rows, p.N, states_aligned, lane);     \
        const R *from = kept + (Offset)((t) / CK) * p.D * p.N; \
        if (WHOLE) {                                           \
            if (l.live) read_vector<S>(start, from);           \
        } else                                                 \
            load_states(p, l, from, start);                    \
    }
    LOAD((chunks - 1) * CK)
#pragma unroll 1
    for (int i = chunks - 1; i >= 0; --i) {
        const int t0 = i * CK, sums = B_O + i % OUTPUTS * 2 * CK * NP;
        sync_warp();
        store_pairs(td, tu, mine + B_X, lane, (R)1);
        tg.store(mine + B_G, lane, SHARE);
        tb.store(mine + B_B, lane, (R)1);
        tc.store(mine + B_C, lane, (R)1);
#pragma unroll
        for (int s = 0; s < S; ++s) v[s] = start[s];
        sync_warp();
        if (i > 0) LOAD(t0 - CK)
        unsigned small = 0;  // a bit for each step
        const R *xs = mine + B_X + l.channel * 2, *bs = mine + B_B + l.group * S;
        R *vs = mine + B_V + lane * S;
#pragma unroll 1
        for (int g = 0; g < CK; g += 8, xs += 8 * CPW * 2, bs += 8 * NP, vs += 8 * 32 * S) {
            R dl[8], most = 0;
#pragma unroll
            for (int j = 0; j < 8; ++j) dl[j] = xs[j * CPW * 2], most = fmax(most, dl[j]);
            const bool all = every(most * l.fastest <= (PHI_LIMIT < PSI_LIMIT ? PHI_LIMIT : PSI_LIMIT));
            small |= (all ? 0xffu : 0u) << g;
            if (all)
                recompute<true>(v, l, terms, dl, xs, bs, vs);
            else
                recompute<false>(v, l, terms, dl, xs, bs, vs);
        }
        r.x = mine + B_X + ((CK - G) * CPW + l.channel) * 2;
        r.g = mine + B_G + (CK - G) * CPW + l.channel;
        r.b = mine + B_B + (CK - G) * NP + l.group * S;
        r.v = mine + B_V + ((CK - G) * 32 + lane) * S;
        r.out = mine + sums + (CK - G) * NP;
        r.gu = place_of(p, l, q, at < G ? p.gu : p.gdelta, at < G ? p.sum_u : p.sum_delta,
                        t0 + CK - G + r.own);
        if (LPC == 1) r.gdelta = place_of(p, l, q, p.gdelta, p.sum_delta, t0 + CK - G);
#pragma unroll 1
        for (int g = CK - G; g >= 0; g -= G) {
            if (small >> g & 1)
                backward_group<true>(p, l, q, r, t0 + g, skip, pick, v, carried, slow, gd);
            else
                backward_group<false>(p, l, q, r, t0 + g, skip, pick, v, carried, slow, gd);
            r.x -= G * CPW * 2, r.g -= G * CPW, r.b -= G * NP, r.v -= G * 32 * S, r.out -= G * NP;
            r.gu.move(p, q, -G), r.gdelta.move(p, q, -G);
        }
        sync_block();  // the gradients of b and c: sums over the block's warps
        for (int e = threadIdx.x; e < 2 * CK * NP / VN; e += 32 * GROUPS) {
            const int at = e * VN, kind = at / (CK * NP), t = t0 + at / NP % CK;
            if (t >= p.length) continue;
            R sum[VN], other[VN];
            read_vector<VN>(sum, shared + sums + at);
#pragma unroll
            for (int w = 1; w < GROUPS; ++w) {
                read_vector<VN>(other, shared + w * B_SIZE + sums + at);
#pragma unroll
                for (int x = 0; x < VN; ++x) sum[x] += other[x];
            }
            leave_part(p, q, block, kind, t, at % NP, sum);
        }
    }
#undef LOAD
    if (p.end) store_states(p, l, p.end + own, carried);
    if (l.live) {
        const long long row = (long long)(p.first_line + line) * p.D + l.c0 + l.channel;
        write_vector<S>(p.part_decay + row * NP + l.group * S, slow);
        if (l.group == 0) p.part_d[row] = gd;
    }
}

// Add up the partial sums: the gradients of b, c, decay and d. Blocks of 256 threads; a sum over
// lines takes 32 threads, which add up every 32nd line each.
extern "C" __global__ void __launch_bounds__(256) scan_finish(const __grid_constant__ Args p) {
    SHARED
    const long long rows = (long long)p.B * p.P, each = rows * NP / VN;
    const long long row_blocks = (2 * each + 255) / 256;
    if (blockIdx.x < row_blocks) {
        const long long e = (long long)blockIdx.x * 256 + threadIdx.x;
        if (e >= 2 * each) return;
        const int kind = e >= each;
        const long long at = (e - (kind ? each : 0)) * VN, row = at / NP, n = at % NP;
        const R *from = p.part_bc + kind * rows * NP + at;
        R sum[VN], part[VN];
#pragma unroll
        for (int x = 0; x < VN; ++x) sum[x] = 0;
#pragma unroll 8
        for (int w = 0; w < p.blocks; ++w) {
            read_vector<VN>(part, from + w * 2 * rows * NP);
#pragma unroll
            for (int x = 0; x < VN; ++x) sum[x] += part[x];
        }
        T *to = (kind ? p.gc : p.gb) + row * p.N;
#pragma unroll
        for (int x = 0; x < VN; ++x)
            if (n + x < p.N) to[n + x] = narrow(sum[x]);
        return;
    }
    const long long count = (long long)p.D * NP, decay_blocks = (count + 7) / 8;
    const long long which = blockIdx.x - row_blocks;
    const bool of_decay = which < decay_blocks;
    const long long size = of_decay ? count : p.D;
    const long long e = (of_decay ? which : which - decay_blocks) * 8 + threadIdx.x % 8;
    const R *from = of_decay ? p.part_decay : p.part_d;
    R sum = 0;
    if (e < size)
#pragma unroll 4
        for (int w = threadIdx.x / 8; w < p.all_lines; w += 32) sum += from[w * size + e];
    shared[threadIdx.x] = sum;
    sync_block();
    if (threadIdx.x >= 8 || e >= size) return;
    for (int w = 1; w < 32; ++w) sum += shared[w * 8 + threadIdx.x];
    if (!of_decay) {
        if (p.gd) p.gd[e] = sum;
    } else if (e % NP < p.N) {
        p.gdecay[e / NP * p.N + e % NP] = -sum;
    }
}
