//! Exceptions to the rules of this folder, each with its reason.

/// Folders with more than 25 files.
pub const FULL_FOLDERS: &[(&str, &str)] = &[];

/// Functions with more than 80 lines.
pub const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Types with more than 40 methods.
pub const LARGE_TYPES: &[(&str, &str)] = &[];

/// Modules that use each other.
pub const CYCLES: &[(&str, &str)] = &[];

/// Public code that only tests call.
pub const FOR_TESTS: &[(&str, &str)] = &[];
