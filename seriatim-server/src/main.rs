//! The program. All of it but this is in the library of this package.

fn main() -> std::process::ExitCode {
    return_large_blocks();
    seriatim_server::main()
}

/// Has the allocator give large blocks back to the system when they are freed. By default glibc stops doing so after
/// the first ones, and keeps them once for each thread: a burst of large requests would stay in memory.
///
/// A fixed threshold for mapping also fixes the one for trimming, at 128 KiB. Then each batch of jobs would give its
/// memory back and fault it in again, page by page. So a few batches' worth is kept.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "glibc has no other way but the environment, which is read before a program begins"
)]
fn return_large_blocks() {
    const LARGE_BYTES: std::ffi::c_int = 1 << 20;
    // SAFETY: they set a number each, before any other thread runs.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 * LARGE_BYTES);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn return_large_blocks() {}
