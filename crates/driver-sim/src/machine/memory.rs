//! Memory: who may use which addresses. Host pages are never given back to the system, so that a store to
//! a freed one is always seen for what it is.

use super::code::*;
use super::pool::Pool;
use super::{Result, machine};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Added to a host address to make a device's, where the script asks for distinct ones.
const DEVICE_BIT: u64 = 1 << 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Page-locked host memory; whether the device may use it.
    Host {
        mapped: bool,
    },
    /// The caller's own, registered.
    Registered {
        mapped: bool,
    },
    Device,
    Managed,
    /// HIP's signal memory: eight bytes for stores and waits.
    Signal,
}

struct Block {
    bytes: usize,
    kind: Kind,
    /// The context that it dies with.
    context: usize,
    pool: Option<Arc<Pool>>,
}

#[derive(Default)]
pub(crate) struct Memory {
    blocks: RwLock<BTreeMap<usize, Block>>,
}

impl Memory {
    pub(crate) fn allocate(
        &self,
        bytes: usize,
        kind: Kind,
        context: usize,
        pool: Option<Arc<Pool>>,
    ) -> Result<usize> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping, at an address of the system's choice.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let start = map.map_err(|_| OUT_OF_MEMORY)? as usize;
        if let Some(pool) = &pool {
            pool.allocated(bytes);
        }
        self.write().insert(start, Block { bytes, kind, context, pool });
        Ok(start)
    }

    pub(crate) fn register(
        &self,
        start: usize,
        bytes: usize,
        mapped: bool,
        context: usize,
    ) -> Result<()> {
        let kind = Kind::Registered { mapped };
        self.write().insert(start, Block { bytes, kind, context, pool: None });
        Ok(())
    }

    /// Frees what starts there and is of one of the kinds.
    pub(crate) fn free(&self, start: usize, wanted: impl Fn(Kind) -> bool) -> Result<()> {
        let start = to_host(start as u64);
        let mut blocks = self.write();
        match blocks.get(&start) {
            Some(block) if wanted(block.kind) => {}
            _ => return Err(INVALID_VALUE),
        }
        if let Some(block) = blocks.remove(&start) {
            retire(start, &block);
        }
        Ok(())
    }

    /// Frees all that dies with a context.
    pub(crate) fn free_context(&self, context: usize) {
        let mut blocks = self.write();
        blocks.retain(|&start, block| {
            let stays = block.context != context;
            if !stays {
                retire(start, block);
            }
            stays
        });
    }

    /// The device's address of host memory.
    pub(crate) fn device_address(&self, host: usize) -> Result<u64> {
        let (start, kind) = self.find(host, 1).ok_or(INVALID_VALUE)?;
        let distinct = machine().script().distinct_addresses;
        match kind {
            Kind::Host { mapped: true } | Kind::Registered { mapped: true } => {
                debug_assert!(start <= host);
                Ok(host as u64 | if distinct { DEVICE_BIT } else { 0 })
            }
            _ => Err(INVALID_VALUE),
        }
    }

    /// Whether the device may use `bytes` at that address, and where the host finds them.
    pub(crate) fn device_range(&self, address: u64, bytes: usize) -> Option<(usize, Kind)> {
        let host = to_host(address);
        let (_, kind) = self.find(host, bytes)?;
        let marked = address & DEVICE_BIT != 0;
        let distinct = machine().script().distinct_addresses;
        match kind {
            Kind::Host { mapped } | Kind::Registered { mapped } => {
                (mapped && marked == distinct).then_some((host, kind))
            }
            _ => Some((host, kind)),
        }
    }

    /// The kind of what is there, if it is the driver's.
    pub(crate) fn kind(&self, address: u64) -> Option<Kind> {
        self.find(to_host(address), 1).map(|(_, kind)| kind)
    }

    /// Runs `deed` while nothing can be freed.
    pub(crate) fn pinned<R>(&self, deed: impl FnOnce(&Pinned<'_>) -> R) -> R {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        deed(&Pinned(&blocks))
    }

    pub(crate) fn host_blocks(&self) -> usize {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        blocks.values().filter(|block| matches!(block.kind, Kind::Host { .. })).count()
    }

    fn find(&self, host: usize, bytes: usize) -> Option<(usize, Kind)> {
        find(&self.blocks.read().unwrap_or_else(PoisonError::into_inner), host, bytes)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<usize, Block>> {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that can't be freed meanwhile.
pub(crate) struct Pinned<'a>(&'a BTreeMap<usize, Block>);

impl Pinned<'_> {
    /// Where the host finds what the device writes, if it is still there.
    fn at(&self, address: u64, bytes: usize) -> Result<*mut u8> {
        let host = to_host(address);
        find(self.0, host, bytes).map(|_| host as *mut u8).ok_or(ILLEGAL_ADDRESS)
    }

    /// A device's store of a whole word, behind a full fence.
    pub(crate) fn store(&self, address: u64, value: u64, wide: bool) -> Result<()> {
        let word = self.at(address, if wide { 8 } else { 4 })?;
        std::sync::atomic::fence(Ordering::SeqCst);
        // SAFETY: the block is live while `self` is and the address was aligned when the store was
        // accepted; both sides use atomics for such words.
        unsafe {
            if wide {
                AtomicU64::from_ptr(word.cast()).store(value, Ordering::Release);
            } else {
                AtomicU32::from_ptr(word.cast()).store(value as u32, Ordering::Release);
            }
        }
        Ok(())
    }

    pub(crate) fn load(&self, address: u64, wide: bool) -> Result<u64> {
        let word = self.at(address, if wide { 8 } else { 4 })?;
        // SAFETY: as in `store`.
        Ok(unsafe {
            if wide {
                AtomicU64::from_ptr(word.cast()).load(Ordering::Acquire)
            } else {
                u64::from(AtomicU32::from_ptr(word.cast()).load(Ordering::Acquire))
            }
        })
    }

    /// Copies bytes; either side may be ordinary host memory, which its owner answers for.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller of the copy vouches for both ranges for as long as the copy is pending, as
        // the C interface says.
        unsafe {
            std::ptr::copy(to_host(from) as *const u8, to_host(to) as *mut u8, bytes);
        }
        Ok(())
    }

    pub(crate) fn fill(&self, to: u64, bytes: usize, pattern: &[u8]) -> Result<()> {
        let start = self.at(to, bytes)?;
        if let [byte] = pattern {
            // SAFETY: inside the block, which is live while `self` is; nobody else may touch it meanwhile.
            unsafe { start.write_bytes(*byte, bytes) };
            return Ok(());
        }
        for (i, &byte) in (0..bytes).zip(pattern.iter().cycle()) {
            // SAFETY: inside the block, which is live while `self` is.
            unsafe { start.add(i).write_volatile(byte) };
        }
        Ok(())
    }
}

fn find(blocks: &BTreeMap<usize, Block>, host: usize, bytes: usize) -> Option<(usize, Kind)> {
    let (&start, block) = blocks.range(..=host).next_back()?;
    (host + bytes <= start + block.bytes).then_some((start, block.kind))
}

fn to_host(address: u64) -> usize {
    (address & !DEVICE_BIT) as usize
}

fn retire(start: usize, block: &Block) {
    if let Some(pool) = &block.pool {
        pool.freed(block.bytes);
    }
    let map = start as *mut core::ffi::c_void;
    // SAFETY: a mapping of ours that nobody may use any more; a registered range stays its owner's.
    unsafe {
        match block.kind {
            Kind::Registered { .. } => {}
            // Kept without access, for ever: a late store of a device, or a read of the host, is a fault.
            Kind::Host { .. } | Kind::Signal => {
                let none = rustix::mm::MprotectFlags::empty();
                let _ = rustix::mm::mprotect(map, block.bytes, none);
            }
            Kind::Device | Kind::Managed => {
                let _ = rustix::mm::munmap(map, block.bytes);
            }
        }
    }
}
