// A step of a stated length whose result is known. The runtime compiler compiles it for its device.

// After so many ticks, each thread below `words` stores a hundred rounds of a generator, from the seed and its
// index.
extern "C" __global__ void step(unsigned long long *out, unsigned int words, unsigned long long seed,
                                unsigned long long ticks) {
    const unsigned long long begin = wall_clock64();
    while (wall_clock64() - begin < ticks) {
    }
    const unsigned int word = threadIdx.x;
    if (word >= words) {
        return;
    }
    unsigned long long x = seed ^ ((unsigned long long)word << 56);
    for (int round = 0; round < 100; ++round) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
    }
    out[word] = x;
}

// Stores to an address that nobody has.
extern "C" __global__ void fault() { *(volatile unsigned long long *)16 = 16; }
