//! Awaits a HIP stream's work by each kind of plan, side by side: `cargo run --example hip_wait --features
//! hip`, and `-- --driver-sim` for the simulated driver inside, where there is no GPU.

mod driver_wait;

fn main() -> gpu_async_reactor::Result<()> {
    driver_wait::main::<gpu_async_reactor::backend::hip::Hip>()
}
