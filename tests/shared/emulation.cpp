// Runs the kernels of chonn_ops/scan/cuda/scan.cu on the CPU: one fiber for each thread of a block,
// and the barriers of warp and block. It stops at misaligned vectors, at deadlocks, and where
// shared memory is overrun; shared memory starts as NaN.
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
using std::fma;
using std::min;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct Index {
    unsigned x;
};
static Index blockIdx, blockDim, threadIdx;

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
};
static std::vector<Fiber> fibers;
static ucontext_t home;
static int self, threads, block_count, block_turn;
static std::vector<int> warp_count, warp_turn;
static char *shared_base;
static void pause_fiber() {
    const int i = self;
    swapcontext(&fibers[i].context, &home);
}
static void wait_warp() {
    const int w = self / 32, turn = warp_turn[w];
    if (++warp_count[w] == 32) warp_count[w] = 0, ++warp_turn[w];
    while (warp_turn[w] == turn) pause_fiber();
}

#define EMULATED
#define DEV inline
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define SHARED R *shared = (R *)shared_base;
DEV void sync_warp() { wait_warp(); }
DEV void sync_block() {
    const int turn = block_turn;
    if (++block_count == threads) block_count = 0, ++block_turn;
    while (block_turn == turn) pause_fiber();
}
static std::vector<double> slots;
template <class X>
DEV X exchange(X x, int mask) {
    slots[self] = x;
    wait_warp();
    const X y = (X)slots[self ^ mask];
    wait_warp();
    return y;
}
DEV bool every(bool p) {
    slots[self] = p;
    wait_warp();
    bool all = true;
    for (int i = 0; i < 32; ++i) all = all && slots[(self & ~31) + i] != 0;
    wait_warp();
    return all;
}
DEV float exp2_of(float x) { return exp2f(x); }
DEV double exp2_of(double x) { return exp2(x); }
DEV float as_float(unsigned x) {
    float f;
    memcpy(&f, &x, 4);
    return f;
}
DEV unsigned as_word(float x) {
    unsigned w;
    memcpy(&w, &x, 4);
    return w;
}
DEV unsigned short to_bfloat16(float x) {
    const unsigned w = as_word(x);
    return x != x ? 0x7fff : (w + 0x7fff + ((w >> 16) & 1)) >> 16;
}
DEV unsigned short to_float16(float x) {
    const _Float16 h = (_Float16)x;
    unsigned short w;
    memcpy(&w, &h, 2);
    return w;
}
DEV float from_float16(unsigned short w) {
    _Float16 h;
    memcpy(&h, &w, 2);
    return (float)h;
}
DEV float tf32(float x) { return as_float(as_word(x) & 0xffffe000u); }
static std::vector<float> fragments;
// mma.sync.aligned.m16n8k8.row.col: rows and columns of the fragments as in PTX's documentation.
DEV void mma(float *c, const float *a, float b0, float b1, bool first) {
    float *own = &fragments[self * 6];
    for (int i = 0; i < 4; ++i) own[i] = tf32(a[i]);
    own[4] = tf32(b0), own[5] = tf32(b1);
    wait_warp();
    const int warp = self & ~31, lane = self & 31;
    for (int i = 0; i < 4; ++i) {
        const int row = (lane >> 2) + (i >= 2 ? 8 : 0), column = (lane & 3) * 2 + (i & 1);
        float sum = first ? 0.0f : c[i];
        for (int k = 0; k < 8; ++k) {
            const int part = (row >= 8) + (k >= 4 ? 2 : 0);
            const float x = fragments[(warp + (row & 7) * 4 + (k & 3)) * 6 + part];
            sum += x * fragments[(warp + column * 4 + (k & 3)) * 6 + 4 + (k >= 4)];
        }
        c[i] = sum;
    }
    wait_warp();
}
DEV void require(bool right, const char *what) {
    if (right) return;
    fprintf(stderr, "emulation: %s\n", what);
    abort();
}
template <class V>
DEV V fetch(const V *p) {
    require((uintptr_t)p % sizeof(V) == 0, "misaligned load");
    return *p;
}

#include "scan.cu"

static void (*kernel)(const Args);
static Args arguments;
static void run_fiber() {
    kernel(arguments);
    fibers[self].done = true;
    while (true) pause_fiber();
}
extern "C" int arguments_size() { return sizeof(Args); }
extern "C" void launch(int which, const Args *args, int blocks, int block_threads, int bytes) {
    kernel = which == 0 ? scan_forward : which == 1 ? scan_backward : scan_finish;
    arguments = *args;
    threads = block_threads;
    blockDim.x = threads;
    slots.assign(threads, 0);
    fragments.assign(threads * 6, 0);
    warp_count.assign(threads / 32, 0);
    warp_turn.assign(threads / 32, 0);
    block_count = block_turn = 0;
    if ((int)fibers.size() != threads) fibers.assign(threads, Fiber());
    const int guard = 1024, words = bytes / 4 + 2 * guard;
    const unsigned unset = 0x7ff92345u;  // half of a double that is NaN, and a float that is
    std::vector<unsigned> room(words + 4);
    unsigned *memory = room.data();
    while ((uintptr_t)memory % 16) ++memory;
    shared_base = (char *)(memory + guard);
    for (int block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        std::fill(memory, memory + words, unset);
        for (auto &fiber : fibers) {
            fiber.done = false;
            if (fiber.stack.empty()) fiber.stack.resize(128 * 1024);
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, run_fiber, 0);
        }
        bool left = true;
        for (long round = 0; left; ++round) {
            require(round < 50000000, "deadlock");
            left = false;
            for (int i = 0; i < threads; ++i) {
                if (fibers[i].done) continue;
                self = threadIdx.x = i;
                swapcontext(&home, &fibers[i].context);
                left = true;
            }
        }
        for (int i = 0; i < guard; ++i)
            require(memory[i] == unset && memory[words - 1 - i] == unset, "shared memory overrun");
    }
}
