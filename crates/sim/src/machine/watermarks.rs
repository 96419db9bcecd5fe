//! The watermarks that the kernel gives a node.
//!
//! Source: Linux 6.12 `mm/page_alloc.c`, `__setup_per_zone_wmarks`: a zone's min mark is its share
//! of `min_free_kbytes`; low, high and promo each lie above the mark before by the larger of min /
//! 4 and `watermark_scale_factor` ten-thousandths of the zone. A node counts as one zone here.

use thermocline_core::topology::Watermarks;

use super::MachineSpec;

/// The watermarks of a node of `pages` pages on a machine of `total` pages.
pub fn watermarks(spec: &MachineSpec, pages: u64, total: u64) -> Watermarks {
    let share = u128::from(spec.min_free.pages()) * u128::from(pages) / u128::from(total.max(1));
    let min_pages = share as u64;
    let step = (min_pages / 4).max(pages * u64::from(spec.watermark_scale_factor) / 10_000);
    Watermarks {
        min_pages,
        low_pages: min_pages + step,
        high_pages: min_pages + 2 * step,
        promo_pages: min_pages + 3 * step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::preset;

    #[test]
    fn a_large_node_steps_by_a_thousandth() {
        let spec = preset("bergamo-cxl").unwrap();
        let pages = 128_880 * 256;
        let marks = watermarks(&spec, pages, 385_958 * 256);
        assert_eq!(marks.low_pages - marks.min_pages, pages / 1000);
        assert_eq!(marks.promo_pages - marks.high_pages, pages / 1000);
    }

    #[test]
    fn a_small_node_steps_by_a_quarter_of_its_min_mark() {
        let mut spec = preset("cxl-2tier").unwrap();
        spec.min_free = crate::units::Bytes(64 << 20);
        let marks = watermarks(&spec, 25_600, 51_200);
        assert_eq!((marks.min_pages, marks.low_pages, marks.promo_pages), (8192, 10_240, 14_336));
    }
}
