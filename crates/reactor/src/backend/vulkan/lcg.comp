#version 450
// Each element steps a linear congruential generator `rounds` times: work of any length whose answer the
// host knows without doing it. Long work is several dispatches, each going on from the last, because a
// driver was seen to stop a shader's loops, nested ones together, at 65,535 turns.
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Out { uint data[]; };
layout(push_constant) uniform Parameters { uint seed; uint rounds; uint count; uint goes_on; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= count) return;
    uint x = goes_on != 0u ? data[i] : seed + i;
    for (uint k = 0u; k < rounds; k++) x = x * 1664525u + 1013904223u;
    data[i] = x;
}
