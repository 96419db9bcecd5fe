//! Prefetch and huge-page arrays.
