//! A growing array of zeroed numbers in huge pages.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::{self, NonNull};

/// Bytes in a huge page of x86-64 (and of arm64 with 4 KiB base pages); the step in which an
/// [`Arena`] grows.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Numbers for which all bits zero is a value and every value is only bits.
pub trait Plain: sealed::Sealed + Copy + Default + Send + Sync + 'static {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($type:ty),*) => { $( impl sealed::Sealed for $type {} impl Plain for $type {} )* };
}
plain!(u8, u16, u32, u64);

/// The kernel did not give the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaError {
    /// What was asked for, as in `reserve` or `grow to`.
    what: &'static str,
    /// How much of it.
    bytes: usize,
    /// The error number of the system call, 0 where none was made.
    errno: i32,
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ArenaError { what, bytes, errno } = *self;
        write!(f, "cannot {what} {} MiB of memory: ", bytes >> 20)?;
        match errno {
            0 => write!(f, "more than was reserved; reserve more"),
            _ => write!(
                f,
                "{}; raise the limits (ulimit -v, the cgroup's memory.max, vm.overcommit_memory)",
                std::io::Error::from_raw_os_error(errno)
            ),
        }
    }
}

impl std::error::Error for ArenaError {}

/// An array that grows in place up to a fixed bound.
///
/// The bound is address space only; memory is taken from the kernel in steps of [`HUGE_PAGE_BYTES`]
/// as the array grows, zeroed, and in huge pages where transparent huge pages are `madvise` or
/// `always`. Elements never move, so that growing costs no copy. All memory goes back when the
/// arena is dropped.
pub struct Arena<T: Plain> {
    /// First element; aligned to a huge page.
    start: NonNull<T>,
    /// Elements that may be accessed.
    len: usize,
    /// Bytes that may be accessed: `len` elements, rounded up to whole huge pages.
    committed: usize,
    /// Bytes from `start` that are ours.
    reserved: usize,
    /// The mapping, with what alignment wasted at its front.
    mapping: NonNull<libc::c_void>,
    mapping_bytes: usize,
    elements: PhantomData<T>,
}

// SAFETY: an arena owns its mapping alone, as a Vec owns its buffer, and Plain types are Send.
unsafe impl<T: Plain> Send for Arena<T> {}
// SAFETY: through a shared arena elements can only be read.
unsafe impl<T: Plain> Sync for Arena<T> {}

impl<T: Plain> Arena<T> {
    /// An empty arena that can grow to `bound` elements.
    ///
    /// # Errors
    /// The address space is not available.
    pub fn reserve(bound: usize) -> Result<Arena<T>, ArenaError> {
        let too_much = ArenaError { what: "reserve", bytes: usize::MAX, errno: libc::ENOMEM };
        let bytes = bound.checked_mul(size_of::<T>()).ok_or(too_much)?;
        let reserved = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or(too_much)?;
        let mapping_bytes = reserved.checked_add(HUGE_PAGE_BYTES).ok_or(too_much)?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of
        // ours.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapping_bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(ArenaError { what: "reserve", bytes: mapping_bytes, errno: last_errno() });
        }
        let front = mapping.addr().wrapping_neg() % HUGE_PAGE_BYTES;
        // SAFETY: `front` is less than HUGE_PAGE_BYTES, by which the mapping is longer than
        // `reserved`.
        let start = unsafe { mapping.byte_add(front) };
        let nonnull =
            |pointer| NonNull::new(pointer).expect("mmap without MAP_FIXED never returns address 0");
        Ok(Arena {
            start: nonnull(start).cast(),
            len: 0,
            committed: 0,
            reserved,
            mapping: nonnull(mapping),
            mapping_bytes,
            elements: PhantomData,
        })
    }

    /// Makes the arena at least `len` elements long; the new ones are zero. A shorter `len` changes
    /// nothing.
    ///
    /// # Errors
    /// `len` is above the bound, or the kernel refuses the memory; the arena is as it was.
    pub fn grow(&mut self, len: usize) -> Result<(), ArenaError> {
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes > self.reserved {
            return Err(ArenaError { what: "grow to", bytes, errno: 0 });
        }
        let committed = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        if committed > self.committed {
            let more = committed - self.committed;
            // SAFETY: `committed` is at most `reserved`, a multiple of the step, so the range lies
            // in our mapping, and nothing refers to it yet.
            unsafe {
                let new = self.start.as_ptr().byte_add(self.committed).cast();
                if libc::mprotect(new, more, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                    return Err(ArenaError { what: "grow to", bytes, errno: last_errno() });
                }
                // Without huge pages (EINVAL: the kernel was built without them) the array is
                // slower, not wrong.
                libc::madvise(new, more, libc::MADV_HUGEPAGE);
            }
            self.committed = committed;
        }
        self.len = self.len.max(len);
        Ok(())
    }

    /// Zeroes the elements of `range` and gives the memory of whole base pages in it back to the
    /// kernel until they are written again.
    ///
    /// # Panics
    /// `range` is out of bounds, as with a slice.
    pub fn release(&mut self, range: Range<usize>) {
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let slice = &mut self[range];
        let start = slice.as_ptr().addr();
        let bytes = size_of_val(slice);
        let front = start.next_multiple_of(page) - start;
        let whole = bytes.saturating_sub(front) / page * page;
        let returned = whole > 0 && {
            // SAFETY: the pages lie in `slice`, which is private anonymous memory that nobody else
            // refers to; reading them afterwards gives zeroes, which are values of a Plain type.
            unsafe {
                libc::madvise(slice.as_mut_ptr().byte_add(front).cast(), whole, libc::MADV_DONTNEED) == 0
            }
        };
        if returned {
            let size = size_of::<T>();
            slice[..front / size].fill(T::default());
            slice[(front + whole) / size..].fill(T::default());
        } else {
            slice.fill(T::default());
        }
    }

    /// Bytes of memory that the arena may hold: what it has grown to, in whole huge pages.
    pub fn committed_bytes(&self) -> usize {
        self.committed
    }
}

impl<T: Plain> Deref for Arena<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements from `start` are committed, aligned, initialised (zero or written
        // through us), and borrowed as we are.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Arena<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> fmt::Debug for Arena<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("len", &self.len)
            .field("committed", &self.committed)
            .field("reserved", &self.reserved)
            .finish_non_exhaustive()
    }
}

impl<T: Plain> Drop for Arena<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it any more. It cannot fail on a
        // range that was mapped as a whole; if it did, the memory would stay until exit.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.mapping_bytes) };
    }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_in_place_with_zeroes() {
        let mut arena = Arena::<u32>::reserve(1 << 30).unwrap();
        assert!(arena.is_empty());
        arena.grow(3).unwrap();
        arena.copy_from_slice(&[1, 2, 3]);
        let before = arena.as_ptr();
        arena.grow(1 << 20).unwrap();
        assert_eq!(arena.as_ptr(), before);
        assert_eq!(arena[..4], [1, 2, 3, 0]);
        assert_eq!(arena[(1 << 20) - 1], 0);
        assert_eq!(arena.committed_bytes(), 4 << 20);
        arena.grow(5).unwrap();
        assert_eq!(arena.len(), 1 << 20);
    }

    #[test]
    fn is_aligned_to_huge_pages() {
        for _ in 0..4 {
            let arena = Arena::<u8>::reserve(1).unwrap();
            assert_eq!(arena.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
        }
    }

    #[test]
    fn refuses_to_outgrow_its_bound_and_stays_usable() {
        let mut arena = Arena::<u64>::reserve(10).unwrap();
        arena.grow(10).unwrap();
        let error = arena.grow(HUGE_PAGE_BYTES / 8 + 1).unwrap_err();
        assert!(error.to_string().contains("more than was reserved"), "{error}");
        assert!(arena.grow(usize::MAX).is_err());
        assert_eq!(arena.len(), 10);
        arena[9] = 7;
        assert_eq!(arena[9], 7);
    }

    #[test]
    fn an_impossible_reservation_says_what_to_do() {
        let error = Arena::<u64>::reserve(1 << 58).unwrap_err();
        assert!(error.to_string().contains("ulimit -v"), "{error}");
        assert!(Arena::<u64>::reserve(usize::MAX).is_err());
    }

    #[test]
    fn release_zeroes_exactly_its_range() {
        let mut arena = Arena::<u16>::reserve(1 << 16).unwrap();
        arena.grow(1 << 16).unwrap();
        for range in [0..0, 5..6, 0..2048, 1..2047, 100..10_000, 2047..2049, 4096..65536] {
            arena.fill(9);
            arena.release(range.clone());
            for (i, &value) in arena.iter().enumerate() {
                assert_eq!(value == 0, range.contains(&i), "element {i} of {range:?}");
            }
        }
    }

    #[test]
    fn takes_memory_as_it_grows_and_gives_it_back() {
        let resident = || -> u64 {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        const SIZE: usize = 256 << 20;
        // Other tests run beside this one; they use a few MiB each.
        const SLACK: u64 = 64 << 20;
        let before = resident();
        let mut arena = Arena::<u8>::reserve(1 << 40).unwrap();
        arena.grow(SIZE).unwrap();
        assert!(resident() < before + SLACK);
        arena.fill(1);
        assert!(resident() > before + SIZE as u64 - SLACK);
        arena.release(0..SIZE);
        assert!(resident() < before + SLACK);
        arena.fill(1);
        drop(arena);
        assert!(resident() < before + SLACK);
    }
}
