//! Choice of the backend, and the error when none works.

use holdfast_sandbox::{
    Backend, BackendChoice, Command, Config, Error, Network, NetworkPolicy, open,
};
use holdfast_types::{Fault as _, Kind};

use crate::world::{World, config};

#[tokio::test]
async fn bubblewrap_is_chosen_where_it_works() -> anyhow::Result<()> {
    let sandbox = open(&Config::default()).await?;

    assert_eq!(sandbox.backend(), Backend::Bubblewrap, "install the package bubblewrap");
    Ok(())
}

#[tokio::test]
async fn without_bubblewrap_it_is_told_what_to_install() -> anyhow::Result<()> {
    let missing = |backend, hosted| Config {
        bwrap: Some("/nowhere/bwrap".into()),
        hosted,
        ..config(backend)
    };

    for (backend, hosted) in [(BackendChoice::Bubblewrap, false), (BackendChoice::Auto, true)] {
        let error = open(&missing(backend, hosted)).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no `bwrap`: install the package bubblewrap");
        assert_eq!(error.kind(), Kind::Unavailable);
    }
    let trusted = open(&missing(BackendChoice::Auto, false)).await?;
    assert_eq!(trusted.backend(), Backend::Plain);
    Ok(())
}

#[tokio::test]
async fn isolation_that_cannot_be_built_is_found_at_once() {
    // A file that is not `bwrap`.
    let broken =
        Config { bwrap: Some("/usr/bin/false".into()), ..config(BackendChoice::Bubblewrap) };

    let error = open(&broken).await.unwrap_err();

    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[tokio::test]
async fn no_isolation_is_refused_where_tenants_are_hosted() {
    let error = open(&Config { hosted: true, ..config(BackendChoice::Plain) }).await.unwrap_err();

    assert!(matches!(error, Error::PlainWhileHosted), "{error}");
}

#[tokio::test]
async fn what_a_command_may_not_ask_for_is_refused() -> anyhow::Result<()> {
    let world = World::walled().await?;
    let refused = async |set: fn(&mut Command)| {
        let mut command = world.command("true");
        set(&mut command);
        let cancel = tokio_util::sync::CancellationToken::new();
        world.sandbox.run(command, cancel).await.unwrap_err()
    };

    let network = refused(|command| command.network = Network::Host).await;
    assert!(matches!(network, Error::NoNetwork), "{network}");
    let long = refused(|command| command.timeout = Some(std::time::Duration::MAX)).await;
    assert!(matches!(long, Error::TimeoutTooLong { .. }), "{long}");
    let elsewhere = refused(|command| command.workspace.dir = "/nowhere".into()).await;
    assert_eq!(elsewhere.kind(), Kind::NotFound);
    Ok(())
}

#[tokio::test]
async fn the_network_that_is_allowed_is_the_hosts() -> anyhow::Result<()> {
    let config = Config { network: NetworkPolicy::Host, ..config(BackendChoice::Bubblewrap) };
    let world = World::with(config).await?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let script = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached");

    let mut command = world.command(&script);
    command.network = Network::Host;
    assert_eq!(world.run_command(command).await?.stdout.to_text(), "reached\n");
    assert_eq!(world.run(&script).await?.stdout.to_text(), "", "unless it does not ask");
    Ok(())
}
