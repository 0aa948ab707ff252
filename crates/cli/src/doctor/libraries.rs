//! The driver libraries, and the entry points in them that matter. Only looked up, never called: some
//! drivers change the system when they are initialised.

use super::Finding;
use libloading::Library;

struct Driver {
    name: &'static str,
    /// In the order of preference.
    files: &'static [&'static str],
    /// Each entry point by its names, the one to prefer first, and what needs it.
    entries: &'static [(&'static [&'static str], &'static str)],
    advice: &'static str,
}

#[cfg(not(windows))]
const CUDA_FILES: &[&str] = &["libcuda.so.1"];
#[cfg(windows)]
const CUDA_FILES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const HIP_FILES: &[&str] =
    &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
#[cfg(windows)]
const HIP_FILES: &[&str] = &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"];
#[cfg(target_os = "linux")]
const VULKAN_FILES: &[&str] = &["libvulkan.so.1"];
#[cfg(target_os = "macos")]
const VULKAN_FILES: &[&str] = &["libvulkan.1.dylib", "libMoltenVK.dylib"];
#[cfg(windows)]
const VULKAN_FILES: &[&str] = &["vulkan-1.dll"];
#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
const VULKAN_FILES: &[&str] = &["libvulkan.so"];

const DRIVERS: &[Driver] = &[
    Driver {
        name: "CUDA",
        files: CUDA_FILES,
        entries: &[
            (&["cuInit"], "everything"),
            (&["cuDevicePrimaryCtxRetain"], "keeping a line's context alive"),
            (&["cuMemHostAlloc"], "a line that the device can store to"),
            (
                &["cuMemHostGetDevicePointer_v2", "cuMemHostGetDevicePointer"],
                "the line's address on the device",
            ),
            (&["cuStreamWriteValue64_v2", "cuStreamWriteValue64"], "flag plans"),
            (&["cuStreamWaitValue64_v2", "cuStreamWaitValue64"], "host gates"),
            (&["cuStreamBatchMemOp_v2", "cuStreamBatchMemOp"], "doorbells"),
            (&["cuEventQuery"], "status"),
            (&["cuStreamQuery"], "making sure that a device is not lost"),
            (&["cuEventSynchronize"], "the plan block"),
            (&["cuStreamIsCapturing"], "refusing a stream in capture"),
        ],
        advice: "with an NVIDIA GPU, install its driver; without one nothing is lost",
    },
    Driver {
        name: "HIP",
        files: HIP_FILES,
        entries: &[
            (&["hipInit"], "everything"),
            (&["hipHostMalloc"], "a line that the device can store to"),
            (&["hipHostGetDevicePointer"], "the line's address on the device"),
            (&["hipStreamWriteValue64"], "flag plans"),
            (&["hipStreamWaitValue64"], "host gates"),
            (&["hipEventQuery"], "status"),
            (&["hipStreamQuery"], "making sure that a device is not lost"),
            (&["hipEventSynchronize"], "the plan block"),
            (&["hipStreamIsCapturing"], "refusing a stream in capture"),
        ],
        advice: "with an AMD GPU, install ROCm's HIP runtime; without one nothing is lost",
    },
    Driver {
        name: "Vulkan",
        files: VULKAN_FILES,
        entries: &[
            (&["vkGetInstanceProcAddr"], "everything"),
            (&["vkEnumerateInstanceVersion"], "Vulkan 1.1 and later"),
            (&["vkCreateInstance"], "everything"),
            (&["vkGetDeviceProcAddr"], "everything on a device"),
        ],
        advice: "on Debian: apt install libvulkan1 mesa-vulkan-drivers (a software device comes with it)",
    },
];

const METAL: &str = "/System/Library/Frameworks/Metal.framework/Metal";

/// Each library, and each entry point of those there are.
pub(super) fn look() -> Vec<Finding> {
    let mut findings: Vec<_> = DRIVERS.iter().flat_map(look_at).collect();
    findings.push(metal());
    findings
}

fn look_at(driver: &Driver) -> Vec<Finding> {
    let mut why = String::new();
    for file in driver.files {
        // SAFETY: a vendor's driver library, looked up by the name it is installed under; its
        // initialisers are made to run in any process that links it.
        match unsafe { Library::new(file) } {
            Ok(library) => {
                let found = vec![Finding::ok("driver", driver.name, *file)];
                return found.into_iter().chain(entries(driver, file, &library)).collect();
            }
            // The first is the one to have.
            Err(e) if why.is_empty() => why = e.to_string(),
            Err(_) => {}
        }
    }
    vec![Finding::missing("driver", driver.name, why, driver.advice)]
}

fn entries<'a>(
    driver: &'a Driver,
    file: &'a str,
    library: &'a Library,
) -> impl Iterator<Item = Finding> + 'a {
    driver.entries.iter().map(move |(names, needs)| {
        let found = names.iter().find(|name| {
            // SAFETY: only whether it is there is asked; it is never called.
            unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_ok()
        });
        match found {
            Some(name) => Finding::ok("entry", names[0], format!("{name} in {file}, for {needs}")),
            None => Finding::missing(
                "entry",
                names[0],
                format!("{file} doesn't have it; needed for {needs}"),
                "install a newer driver",
            ),
        }
    })
}

fn metal() -> Finding {
    if !cfg!(target_vendor = "apple") {
        let system = std::env::consts::OS;
        return Finding::missing(
            "driver",
            "Metal",
            format!("not on {system}"),
            "nothing to do: it is Apple's alone",
        );
    }
    // SAFETY: the system's own framework, made to be loaded into any process.
    match unsafe { Library::new(METAL) } {
        Ok(_) => Finding::ok("driver", "Metal", METAL),
        Err(e) => Finding::missing("driver", "Metal", e.to_string(), "update the system"),
    }
}
