//! Network access of a command.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, UdpSocket},
    os::{linux::net::SocketAddrExt as _, unix::net},
    sync::Arc,
};

use holdfast_proxy::{ConnectRules, RuleDecision};
use holdfast_sandbox::{BackendChoice, Config, Network, NetworkPolicy, Outcome};

use crate::world::{World, config};

/// Allows one name, which is on this machine.
#[derive(Debug)]
struct OnlyHere;

impl ConnectRules for OnlyHere {
    fn check(&self, host: String, port: u16) -> RuleDecision {
        Box::pin(async move {
            match host.as_str() {
                "here.test" => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
                _ => Err(format!("`{host}` is refused")),
            }
        })
    }
}

async fn proxied() -> anyhow::Result<World> {
    World::with(Config {
        network: NetworkPolicy::Proxy,
        listener_program: Some(env!("CARGO_BIN_EXE_holdfast-sandbox-listener").into()),
        ..config(BackendChoice::Bubblewrap)
    })
    .await
}

async fn run_proxied(
    world: &World,
    script: &str,
    env: [(&str, &str); 1],
) -> anyhow::Result<Outcome> {
    let mut command = world.command(script);
    command.network = Network::Proxy(Arc::new(OnlyHere));
    command.env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    world.run_command(command).await
}

/// Function of a shell that requests a URL from the proxy that the variables name.
const FETCH: &str = "fetch() { at=${http_proxy#http://}; exec 3<>/dev/tcp/${at%:*}/${at#*:}; \
                     printf 'GET %s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' \"$1\" >&3; tail -n 1 <&3; }\n";

#[tokio::test]
async fn a_command_reaches_what_the_rules_of_its_proxy_allow_and_nothing_else() -> anyhow::Result<()>
{
    let world = proxied().await?;
    let server = TcpListener::bind("127.0.0.1:0")?;
    let port = server.local_addr()?.port();
    let serving = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = server.accept()?;
        let _request = stream.read(&mut [0; 1024])?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nwelcome")
    });
    let script = format!(
        "{FETCH}echo \"$A\"; cat; grep -c : /proc/net/dev\n\
         (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo direct\n\
         fetch http://here.test:{port}/; echo\n\
         fetch http://127.0.0.1:{port}/; echo\n\
         fetch http://169.254.169.254/"
    );

    let quoted = "it's \"mine\" $(touch x)";
    let outcome = run_proxied(&world, &script, [("A", quoted)]).await?;

    let (out, err) = (outcome.stdout.to_text(), outcome.stderr.to_text());
    let lines: Vec<&str> = out.lines().collect();
    let refused = ["`127.0.0.1` is refused", "`169.254.169.254` is refused"];
    assert_eq!(lines, [quoted, "1", "welcome", refused[0], refused[1]], "{err}");
    assert!(serving.join().is_ok_and(|served| served.is_ok()));
    Ok(())
}

#[tokio::test]
async fn a_command_does_not_get_hold_of_the_listener_of_its_proxy() -> anyhow::Result<()> {
    let world = proxied().await?;
    std::fs::write(
        world.workspace().join("early.sh"),
        "readlink /proc/self/fd/* /proc/1/fd/* 2>/dev/null | grep -c socket\n",
    )?;

    // The shell runs this file first.
    let early = [("BASH_ENV", "/workspace/early.sh")];
    let outcome = run_proxied(&world, "true", early).await?;

    assert_eq!(outcome.stdout.to_text(), "0\n", "{}", outcome.stderr.to_text());
    Ok(())
}

#[tokio::test]
async fn where_commands_have_a_proxy_they_do_not_get_the_hosts_network() -> anyhow::Result<()> {
    let world = proxied().await?;
    let mut command = world.command("true");
    command.network = Network::Host;

    let refused = world.run_command(command).await;

    assert!(refused.is_err());
    Ok(())
}

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
