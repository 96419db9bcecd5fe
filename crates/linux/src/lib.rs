//! The live machine: one module a kernel interface, each rooted at a path.
