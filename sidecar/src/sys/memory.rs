//! Which pages of this process are in memory.

/// What of the stack stays, for the calls to come, so that a kill needs no memory.
const KEPT: usize = 16 << 10;

/// How deep the stack was at most. Below the stack of a process there is a gap of 1 MiB
/// (`stack_guard_gap`), and stacks of threads have more than this.
const DEEPEST: usize = 256 << 10;

/// The pages of code and constants: mapped from the binary, and never written to. What the loader has
/// relocated lies behind them.
fn code() -> (*mut libc::c_void, usize) {
    unsafe extern "C" {
        // From the linker (see `ld --verbose`).
        static __executable_start: u8;
        static etext: u8;
    }
    let page = rustix::param::page_size();
    let start = (&raw const __executable_start).addr();
    let len = ((&raw const etext).addr() & !(page - 1)).saturating_sub(start);
    ((&raw const __executable_start).cast_mut().cast(), len)
}

/// Gives back the pages of code and constants that this process has touched so far. The kernel maps
/// those that are needed again, from the page cache that all processes of this binary share.
pub(crate) fn forget_touched_code() {
    let (start, len) = code();
    // SAFETY: the range begins with the binary's first page, and all of it is a private mapping of
    // a file without changes: reading it again gives the same bytes. Failing changes nothing.
    unsafe { libc::madvise(start, len, libc::MADV_DONTNEED) };
}

/// Gives back what of the stack deeper calls have used before, which is nearly all of it: reading the
/// command line goes 190 kB deep, waiting and killing not one page of 4 KiB.
pub(crate) fn forget_deeper_stack() {
    let here = 0_u8;
    let (from, len) = deeper((&raw const here).addr(), rustix::param::page_size());
    // SAFETY: everything in the range is below the frames that are in use, by more than the red zone and this
    // call need: it is not read before it is written again. Parts that are not mapped are left out, with an error
    // that changes nothing.
    unsafe {
        libc::madvise(
            std::ptr::with_exposed_provenance_mut(from),
            len,
            libc::MADV_DONTNEED,
        )
    };
}

/// The whole pages of the stack that are deeper than what stays below `here`: where they begin and how
/// many bytes they are. The kernel would round an incomplete page at the end up (madvise(2)).
fn deeper(here: usize, page: usize) -> (usize, usize) {
    let from = (here - DEEPEST).next_multiple_of(page);
    let end = (here - KEPT) & !(page - 1);
    (from, end.saturating_sub(from))
}

/// Keeps in memory what is there, and what is touched from now on, so that no disk can delay it: all of
/// this process where that is permitted (`RLIMIT_MEMLOCK`, `CAP_IPC_LOCK`), else its code, else nothing. Whether it is all.
pub(crate) fn lock_memory() -> bool {
    let (start, len) = code();
    // SAFETY: locking changes no content; the range is that of the binary.
    unsafe {
        let is_all = libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) == 0;
        if !is_all {
            libc::mlock2(start, len, libc::MLOCK_ONFAULT as libc::c_uint);
        }
        is_all
    }
}

pub(crate) fn unlock_memory() {
    // SAFETY: the call has no preconditions.
    unsafe { libc::munlockall() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_of_the_stack_is_whole_pages_of_any_size_below_what_stays() {
        const KIB: usize = 1 << 10;
        for page in [4 * KIB, 16 * KIB, 64 * KIB] {
            for offset in (0..2 * page).step_by(KIB).chain([1, page - 1, page + 1]) {
                let here = (0x7fff_0000_0000 | offset) & !0xf;
                let (from, len) = deeper(here, page);
                assert_eq!((from % page, len % page), (0, 0), "{page} {offset}");
                assert!(
                    from >= here - DEEPEST && from + len <= here - KEPT,
                    "{page} {offset}"
                );
                assert!(
                    len + 2 * page > DEEPEST - KEPT,
                    "{page} {offset}: {len} is too little"
                );
            }
        }
    }
}
