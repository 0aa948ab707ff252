//! Status numbers. CUDA and HIP give nearly every one the same number, so one list serves both.

pub(crate) type Code = i32;

macro_rules! codes {
    ($($name:ident = $number:literal, $cuda:literal, $hip:literal;)*) => {
        $(
            #[allow(dead_code)] // A script may answer with any of them.
            pub(crate) const $name: Code = $number;
        )*
        /// CUDA's and HIP's name of each.
        pub(crate) const NAMES: &[(Code, &std::ffi::CStr, &std::ffi::CStr)] = &[$(($number, $cuda, $hip),)*];
    };
}

codes! {
    OK = 0, c"CUDA_SUCCESS", c"hipSuccess";
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"hipErrorInvalidValue";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"hipErrorOutOfMemory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"hipErrorNotInitialized";
    DEINITIALIZED = 4, c"CUDA_ERROR_DEINITIALIZED", c"hipErrorDeinitialized";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"hipErrorNoDevice";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"hipErrorInvalidDevice";
    INVALID_IMAGE = 200, c"CUDA_ERROR_INVALID_IMAGE", c"hipErrorInvalidImage";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"hipErrorInvalidContext";
    INVALID_PTX = 218, c"CUDA_ERROR_INVALID_PTX", c"hipErrorInvalidKernelFile";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"hipErrorInvalidHandle";
    ILLEGAL_STATE = 401, c"CUDA_ERROR_ILLEGAL_STATE", c"hipErrorIllegalState";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"hipErrorNotFound";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"hipErrorNotReady";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"hipErrorIllegalAddress";
    LAUNCH_TIMEOUT = 702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"hipErrorLaunchTimeOut";
    CONTEXT_ACTIVE = 708, c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", c"hipErrorSetOnActiveProcess";
    CONTEXT_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"hipErrorContextIsDestroyed";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED", c"hipErrorLaunchFailure";
    NOT_PERMITTED = 800, c"CUDA_ERROR_NOT_PERMITTED", c"hipErrorNotPermitted";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"hipErrorNotSupported";
    CAPTURE_UNSUPPORTED = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"hipErrorStreamCaptureUnsupported";
    CAPTURE_INVALIDATED = 901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"hipErrorStreamCaptureInvalidated";
    CAPTURE_ISOLATION = 905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"hipErrorStreamCaptureIsolation";
    CAPTURE_IMPLICIT = 906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", c"hipErrorStreamCaptureImplicit";
    CAPTURED_EVENT = 907, c"CUDA_ERROR_CAPTURED_EVENT", c"hipErrorCapturedEvent";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"hipErrorUnknown";
}
