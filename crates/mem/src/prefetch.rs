//! Prefetch.

/// Asks the CPU to bring `slice[index]` into its nearest cache; nothing happens where `index` is
/// out of bounds or the architecture has no such instruction that stable Rust offers.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = slice.as_ptr().wrapping_add(index).cast::<i8>();
        // SAFETY: PREFETCHT0 is part of SSE, which every x86_64 has, and never faults, whatever the
        // address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (slice, index);
    }
}

#[cfg(test)]
mod tests {
    use super::prefetch;

    #[test]
    fn any_index_is_harmless() {
        let slice = [1u32, 2, 3];
        for index in [0, 2, 3, 1 << 20, usize::MAX] {
            prefetch(&slice, index);
        }
        prefetch::<u64>(&[], 0);
        assert_eq!(slice, [1, 2, 3]);
    }
}
