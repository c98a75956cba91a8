//! System calls that the filter refuses.

use crate::world::World;

/// Calls with zero arguments: if the filter passed them, the kernel would find the arguments wrong.
const CALLS: &[(&str, libc::c_long)] = &[
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    ("chroot", libc::SYS_chroot),
    ("clone3", libc::SYS_clone3),
    ("finit_module", libc::SYS_finit_module),
    ("fsopen", libc::SYS_fsopen),
    ("init_module", libc::SYS_init_module),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("memfd_create", libc::SYS_memfd_create),
    ("mount", libc::SYS_mount),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pivot_root", libc::SYS_pivot_root),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("ptrace", libc::SYS_ptrace),
    ("reboot", libc::SYS_reboot),
    ("request_key", libc::SYS_request_key),
    ("setns", libc::SYS_setns),
    ("shmget", libc::SYS_shmget),
    ("swapon", libc::SYS_swapon),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("newer than the filter", 900),
];

/// Makes each call, and prints the names of those that were not refused.
fn script() -> String {
    let mut script = String::from("perl -e 'sub t { my ($n, @a) = @_; $! = 0; ");
    script.push_str("my $r = syscall(shift @a, @a); ");
    script.push_str("print \"$n: $r $!\\n\" unless $r == -1 && ($! == 1 || $! == 38); } ");
    for (name, number) in CALLS {
        script.push_str(&format!("t(\"{name}\", {number}, 0, 0, 0, 0, 0, 0); "));
    }
    script.push_str("print \"all\\n\"'");
    script
}

#[tokio::test]
async fn calls_that_administer_or_look_into_others_are_refused() -> anyhow::Result<()> {
    assert_eq!(World::walled().await?.output(&script()).await?, "all\n");
    Ok(())
}

#[tokio::test]
async fn without_isolation_the_same_calls_get_through() -> anyhow::Result<()> {
    // Shows that the test above can fail.
    let through = World::plain().await?.output(&script()).await?;

    for name in ["keyctl", "io_uring_setup", "memfd_create", "unshare", "clone3", "setns"] {
        assert!(through.contains(&format!("{name}: ")), "{name} of {through}");
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn the_calls_of_another_architecture_are_refused() -> anyhow::Result<()> {
    let world = World::walled().await?;
    // getpid of x32: the filter sees its number, not its architecture.
    let script = "perl -e '$r = syscall(0x40000000 + 39); print \"$r \", $! + 0'";

    assert_eq!(world.output(script).await?, "-1 38");
    Ok(())
}

#[tokio::test]
async fn no_namespace_can_be_made() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let clone = libc::SYS_clone;
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWPID] {
        let flags = flag | libc::SIGCHLD;
        let script = format!(
            "perl -e '$r = syscall({clone}, {flags}, 0, 0, 0, 0); exit if $r == 0; \
             print \"$r \", $! + 0'"
        );
        assert_eq!(world.output(&script).await?, "-1 1", "{flag:x}");
    }
    assert!(!world.run("unshare -Ur true").await?.ended.is_success());
    Ok(())
}

#[tokio::test]
async fn only_ordinary_sockets_can_be_made() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "perl -e 'for my $f (1, 2, 10, 16, 17, 38, 40) \
                  { print socket(my $s, $f, 3 - ($f < 16), 0) ? \"$f \" : ($! + 0) . \" \" }'";

    // Unix, IPv4, IPv6; netlink, packets, the kernel's cryptography, the hypervisor.
    let output = world.output(script).await?;

    assert_eq!(
        output.trim().split(' ').skip(3).collect::<Vec<_>>(),
        ["1", "1", "1", "1"],
        "{output}"
    );
    let ordinary = "perl -e 'for my $f (1, 2, 10) { socket(my $s, $f, 1, 0) or die $! }'";
    assert_eq!(world.output(ordinary).await?, "");
    // SCTP by its protocol and by its type, MPTCP, pings, raw IP.
    let script = "perl -e 'for my $kind ([1, 132], [5, 0], [1, 262], [2, 1], [3, 255]) \
                  { print socket(my $s, 2, $kind->[0], $kind->[1]) ? 0 : ($! + 0), \" \" } \
                  print socketpair(my $a, my $b, 16, 2, 0) ? 0 : ($! + 0)'";
    assert_eq!(world.output(script).await?.trim(), "1 1 1 1 1 1");
    let ordinary = "perl -e 'for my $kind ([1, 6], [2, 17]) \
                    { socket(my $s, 10, $kind->[0], $kind->[1]) or die $! } \
                    socketpair(my $a, my $b, 1, 1, 0) or die $!'";
    assert_eq!(world.output(ordinary).await?, "");
    Ok(())
}

#[tokio::test]
async fn a_command_has_no_privileges_and_gains_none() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status; \
                  cp /bin/bash b; chmod 6755 b; ./b -p -c 'id -u'; \
                  mount -t tmpfs x /tmp 2>/dev/null && echo mounted; \
                  mknod d c 1 1 2>/dev/null && echo device; \
                  chown 0:0 b 2>/dev/null && echo owner; true";

    let none = "0000000000000000";
    assert_eq!(
        world.output(script).await?,
        format!(
            "CapPrm:\t{none}\nCapEff:\t{none}\nCapBnd:\t{none}\nCapAmb:\t{none}\n\
             NoNewPrivs:\t1\nSeccomp:\t2\n1000\n"
        )
    );
    Ok(())
}
