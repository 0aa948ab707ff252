//! Whether this process is a child that was forked after a mark was made: its threads are not here.
//!
//! On Linux the mark is a page that the kernel empties in a child, so that the question costs a load.

/// A mark that a forked child finds gone.
#[derive(Debug)]
pub(super) struct ForkMark {
    #[cfg(target_os = "linux")]
    page: Option<page::Page>,
    process: u32,
}

impl ForkMark {
    pub(super) fn new() -> ForkMark {
        ForkMark {
            #[cfg(target_os = "linux")]
            page: page::Page::new(),
            process: std::process::id(),
        }
    }

    /// Whether the mark was made in this process.
    pub(super) fn is_here(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(page) = &self.page {
            return page.is_set();
        }
        std::process::id() == self.process
    }
}

#[cfg(target_os = "linux")]
mod page {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::{NonNull, null_mut};
    use std::sync::atomic::{AtomicU8, Ordering};

    #[derive(Debug)]
    pub(super) struct Page(NonNull<AtomicU8>);

    /// Pages are at least this large everywhere.
    const SIZE: usize = 4096;

    // SAFETY: the page is read and written through an atomic only, and unmapped once, by its owner.
    unsafe impl Send for Page {}
    // SAFETY: as above.
    unsafe impl Sync for Page {}

    impl Page {
        pub(super) fn new() -> Option<Page> {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new anonymous mapping, wherever the kernel likes.
            let at = unsafe { mmap_anonymous(null_mut(), SIZE, access, flags) }.ok()?;
            let page = Page(NonNull::new(at.cast())?);
            // SAFETY: the mapping is ours; a kernel too old refuses.
            unsafe { madvise(at, SIZE, Advice::LinuxWipeOnFork) }.ok()?;
            page.word().store(1, Ordering::Relaxed);
            Some(page)
        }

        pub(super) fn is_set(&self) -> bool {
            self.word().load(Ordering::Relaxed) == 1
        }

        fn word(&self) -> &AtomicU8 {
            // SAFETY: mapped, zeroed by the kernel, until `drop`.
            unsafe { self.0.as_ref() }
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`, and nobody refers to it any more.
            let _ = unsafe { munmap(self.0.as_ptr().cast(), SIZE) };
        }
    }
}
