//! Network access of a command.

use std::{
    net::{TcpListener, UdpSocket},
    os::{linux::net::SocketAddrExt as _, unix::net},
};

use crate::world::World;

#[tokio::test]
async fn the_hosts_loopback_is_not_reached() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let tcp = TcpListener::bind("127.0.0.1:0")?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    udp.set_nonblocking(true)?;
    let (tcp_port, udp_port) = (tcp.local_addr()?.port(), udp.local_addr()?.port());

    let script = format!(
        "(exec 3<>/dev/tcp/127.0.0.1/{tcp_port}) 2>/dev/null && echo tcp; \
         (echo hello > /dev/udp/127.0.0.1/{udp_port}) 2>/dev/null; true"
    );
    assert_eq!(world.output(&script).await?, "");

    assert!(udp.recv(&mut [0; 8]).is_err());
    Ok(())
}

#[tokio::test]
async fn neither_other_machines_nor_names_are_reached() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "(exec 3<>/dev/tcp/192.0.2.1/80) 2>/dev/null && echo tcp; \
                  (echo x > /dev/udp/192.0.2.1/53) 2>/dev/null && echo udp; \
                  getent hosts example.org && echo name; \
                  grep -vc ' *lo:' /proc/net/dev";

    assert_eq!(world.output(script).await?, "2\n", "only the table's head");
    Ok(())
}

#[tokio::test]
async fn a_socket_without_a_file_is_not_reached() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let name = format!("hf-test-{}", std::process::id());
    let _listener = net::UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(&name)?)?;

    let script = format!(
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; \
         print connect(S, pack(\"S a*\", AF_UNIX, \"\\0{name}\")) ? \"reached\" : \"refused\"'"
    );
    assert_eq!(world.output(&script).await?, "refused");
    Ok(())
}

#[tokio::test]
async fn a_command_has_a_loopback_of_its_own() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let script = "perl -MSocket -e 'socket(L, PF_INET, SOCK_STREAM, 0) or die $!; \
                  bind(L, pack_sockaddr_in(0, INADDR_LOOPBACK)) or die $!; listen(L, 1); \
                  socket(C, PF_INET, SOCK_STREAM, 0); \
                  connect(C, getsockname(L)) or die $!; print \"connected\"'";

    assert_eq!(world.output(script).await?, "connected");
    Ok(())
}
