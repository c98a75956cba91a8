//! System calls that a command cannot make.
//!
//! Calls that a process without privileges needs for its work are allowed. Calls are refused that
//! administer the machine, inspect other processes, make new namespaces (and with them new
//! privileges to attack the kernel with), or are a rich source of kernel bugs and not needed by
//! commands. Calls newer than this list report `ENOSYS`, as do the x32 calls; programs then use
//! older ones.
//!
//! There are three filters. Each applies to every call; the strictest result wins (seccomp(2)).

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use crate::Error;

/// Calls that fail with `EPERM`, so that programs see that they lack a right.
const FORBIDDEN_CALLS: &[libc::c_long] = &[
    // Machine and clock.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_delete_module,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // File systems and roots.
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_umount2,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // Namespaces.
    libc::SYS_setns,
    libc::SYS_unshare,
    // Other processes.
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Keys belong to the user, who is shared with the mesh.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Kernel machinery.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
];

/// Calls that fail with `ENOSYS`: programs have an alternative, and use it on this error only.
const UNAVAILABLE_CALLS: &[libc::c_long] = &[
    // Flags of `clone3` are in memory, where a filter cannot look; the C library falls back to
    // `clone`.
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Memory that belongs to no process and no file system, which our measurements would miss.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
];

/// Forbidden calls that only this kind of processor has.
#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: &[libc::c_long] =
    &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS_ustat];
#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: &[libc::c_long] = &[];

/// Newest call that was reviewed: `futex_requeue`, Linux 6.7. Numbers from 424 on are the same on
/// all processors.
const NEWEST_CALL: u32 = 456;

/// Flags of `unshare`, which `clone` takes too.
const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Permitted socket families. Others (netlink, packets, vsock …) reach the kernel or the
/// hypervisor.
const SOCKET_FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Bits of a socket's type; the others are flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Raw sockets, and types that no ordinary program uses.
const FORBIDDEN_SOCKET_TYPES: [libc::c_int; 4] = [
    libc::SOCK_RAW,
    libc::SOCK_RDM,
    6,  // SOCK_DCCP
    10, // SOCK_PACKET
];

/// Requests that put characters into a terminal's input: an escape through a shared terminal.
const INJECTING_IOCTLS: [u64; 2] = [
    0x5412, // TIOCSTI
    0x541c, // TIOCLINUX
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the filters, each as the bytes that `bwrap --add-seccomp-fd` reads.
///
/// # Errors
///
/// On a processor that has no filter.
pub(crate) fn filters() -> Result<Vec<Vec<u8>>, Error> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => TargetArch::x86_64,
        "aarch64" => TargetArch::aarch64,
        _ => return Err(Error::UnsupportedProcessor),
    };
    let compile = |rules: Rules, errno: libc::c_int| -> Result<Vec<u8>, Error> {
        let errno = u32::try_from(errno).map_err(|_| Error::UnsupportedProcessor)?;
        let refuse = SeccompAction::Errno(errno);
        let filter =
            SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(filter_error)?;
        Ok(bytes(&BpfProgram::try_from(filter).map_err(filter_error)?))
    };
    let absent = UNAVAILABLE_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    Ok(vec![
        compile(forbidden().map_err(filter_error)?, libc::EPERM)?,
        compile(absent, libc::ENOSYS)?,
        bytes(&newer_is_absent()),
    ])
}

fn filter_error(error: seccompiler::BackendError) -> Error {
    Error::Failed { what: "write the system call filter", source: std::io::Error::other(error) }
}

fn forbidden() -> Result<Rules, seccompiler::BackendError> {
    let calls = FORBIDDEN_CALLS.iter().chain(FORBIDDEN_HERE);
    let mut rules: Rules = calls.map(|call| (*call, Vec::new())).collect();

    let mut clone = Vec::new();
    for flag in NAMESPACE_FLAGS {
        let flag = u64::from(flag.cast_unsigned());
        let has = SeccompCondition::new(0, Len::Qword, Op::MaskedEq(flag), flag)?;
        clone.push(SeccompRule::new(vec![has])?);
    }
    rules.insert(libc::SYS_clone, clone);

    rules.insert(libc::SYS_socket, unusual_sockets()?);
    let other = argument(0, Op::Ne, libc::AF_UNIX)?;
    rules.insert(libc::SYS_socketpair, vec![SeccompRule::new(vec![other])?]);

    let mut inject = Vec::new();
    for request in INJECTING_IOCTLS {
        let same = SeccompCondition::new(1, Len::Dword, Op::Eq, request)?;
        inject.push(SeccompRule::new(vec![same])?);
    }
    rules.insert(libc::SYS_ioctl, inject);
    Ok(rules)
}

/// Sockets of other families, and those that are neither TCP nor UDP nor local.
fn unusual_sockets() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let other_family: Result<Vec<_>, _> =
        SOCKET_FAMILIES.into_iter().map(|family| argument(0, Op::Ne, family)).collect();
    let mut rules = vec![SeccompRule::new(other_family?)?];
    for kind in FORBIDDEN_SOCKET_TYPES {
        rules.push(SeccompRule::new(vec![argument(1, Op::MaskedEq(SOCKET_TYPE_MASK), kind)?])?);
    }
    // SCTP's type; local sockets have it too.
    let of_network = || argument(0, Op::Ne, libc::AF_UNIX);
    let packets = argument(1, Op::MaskedEq(SOCKET_TYPE_MASK), libc::SOCK_SEQPACKET)?;
    rules.push(SeccompRule::new(vec![of_network()?, packets])?);
    let mut other_protocol = vec![of_network()?];
    for protocol in [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
        other_protocol.push(argument(2, Op::Ne, protocol)?);
    }
    rules.push(SeccompRule::new(other_protocol)?);
    Ok(rules)
}

fn argument(
    number: u8,
    comparison: Op,
    value: libc::c_int,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(number, Len::Dword, comparison, u64::from(value.cast_unsigned()))
}

/// Returns a filter that refuses all numbers beyond [`NEWEST`]; x32's begin at 0x4000_0000.
///
/// Written by hand: rules of seccompiler match one call each. The other filters kill calls of a
/// foreign architecture.
fn newer_is_absent() -> BpfProgram {
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        // BPF_LD | BPF_W | BPF_ABS: the call's number, the first field of `seccomp_data`.
        instruction(0x20, 0, 0, 0),
        // BPF_JMP | BPF_JGT | BPF_K
        instruction(0x25, 0, 1, NEWEST_CALL),
        // BPF_RET | BPF_K
        instruction(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        instruction(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Encodes a program as the kernel reads it: `struct sock_filter`, in the machine's byte order.
fn bytes(program: &[sock_filter]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for instruction in program {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_whole_instructions_and_within_what_the_kernel_takes() {
        let filters = filters().unwrap();

        assert_eq!(filters.len(), 3);
        for filter in filters {
            assert_eq!(filter.len() % 8, 0);
            assert!(filter.len() / 8 <= 4096, "BPF_MAXINSNS");
        }
    }

    #[test]
    fn no_listed_call_is_newer_than_the_newest() {
        for call in FORBIDDEN_CALLS.iter().chain(FORBIDDEN_HERE).chain(UNAVAILABLE_CALLS) {
            assert!(*call <= i64::from(NEWEST_CALL), "{call}");
        }
    }
}
