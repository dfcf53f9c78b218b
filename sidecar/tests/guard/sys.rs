//! The few calls to the kernel that Rust cannot check.
#![allow(unsafe_code)]

use std::io;

/// Ends the calling thread alone. Of a main thread the process goes on without it.
pub fn end_this_thread() -> ! {
    // SAFETY: the thread holds nothing that another one waits for.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit(2) does not return")
}

/// Has the kernel answer ENOSYS to these calls, for this process and all that it starts (seccomp(2)), as
/// an older kernel would.
pub fn forbid(calls: &[libc::c_long]) -> io::Result<()> {
    const NUMBER: u32 = 0;
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER)];
    for call in calls {
        program.push(libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call as u32)
        });
        let answer = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        program.push(statement(libc::BPF_RET | libc::BPF_K, answer));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program outlives the call, which copies it; without new privileges no right is needed.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    if set {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
