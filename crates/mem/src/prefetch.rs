//! Prefetch.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Asks the CPU to bring `slice[index]` into its nearest cache; nothing happens where `index` is
/// out of bounds or the architecture has no such instruction that stable Rust offers.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_byte(slice, index.wrapping_mul(size_of::<T>()));
}

/// The same for the byte at `offset`.
#[inline(always)]
fn prefetch_byte<T>(slice: &[T], offset: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = slice.as_ptr().cast::<i8>().wrapping_add(offset);
        // SAFETY: PREFETCHT0 is part of SSE, which every x86_64 has, and never faults, whatever the
        // address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (slice, offset);
    }
}

/// Asks the CPU for all of a slice: for elements that are larger than a cache line.
#[inline]
pub fn prefetch_all<T>(slice: &[T]) {
    let bytes = size_of_val(slice);
    for start in (0..bytes).step_by(LINE_BYTES) {
        prefetch_byte(slice, start);
    }
    // It may begin within a line, and then ends in one more.
    prefetch_byte(slice, bytes.saturating_sub(1));
}

#[cfg(test)]
mod tests {
    use super::{prefetch, prefetch_all};

    #[test]
    fn any_index_is_harmless() {
        let slice = [1u32, 2, 3];
        for index in [0, 2, 3, 1 << 20, usize::MAX] {
            prefetch(&slice, index);
        }
        prefetch::<u64>(&[], 0);
        prefetch_all(&[[7u64; 100]; 3]);
        prefetch_all::<u64>(&[]);
        assert_eq!(slice, [1, 2, 3]);
    }
}
