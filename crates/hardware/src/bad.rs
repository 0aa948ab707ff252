//! What went wrong, in words.

use gpu_async_reactor::Error;
use gpu_async_reactor::watcher::WaitError;
use std::fmt;

/// An error in words.
#[derive(Debug)]
pub struct Bad(pub String);

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Bad {
    fn from(what: String) -> Bad {
        Bad(what)
    }
}

impl From<&str> for Bad {
    fn from(what: &str) -> Bad {
        Bad(what.to_owned())
    }
}

impl From<Error> for Bad {
    fn from(error: Error) -> Bad {
        Bad(error.to_string())
    }
}

impl From<WaitError> for Bad {
    fn from(error: WaitError) -> Bad {
        Bad(error.to_string())
    }
}

impl From<std::io::Error> for Bad {
    fn from(error: std::io::Error) -> Bad {
        Bad(error.to_string())
    }
}
