//! Awaits a CUDA stream's work by each kind of plan, side by side: `cargo run --example cuda_wait --features
//! cuda`, and `-- --driver-sim` for the simulated driver inside, where there is no GPU.

mod driver_wait;

fn main() -> gpu_async_reactor::Result<()> {
    driver_wait::main::<gpu_async_reactor::backend::cuda::Cuda>()
}
