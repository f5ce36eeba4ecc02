//! The program. All of it but this is in the library of this package.

fn main() -> std::process::ExitCode {
    return_large_blocks();
    keep_small_buffers();
    seriatim_server::main()
}

/// Has the MySQL driver keep at most 1 MiB of each buffer that carried a packet. By default it is 4 MiB, and so much is
/// left of each large payload that was ever on its way at the same time as others.
#[expect(unsafe_code, reason = "the driver takes it from the environment alone")]
fn keep_small_buffers() {
    const NAME: &str = "MYSQL_ASYNC_BUFFER_SIZE_CAP";
    if std::env::var_os(NAME).is_none() {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(NAME, "1048576") };
    }
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
