//! Which service can call which, with the keys that `up` makes.

use std::{fs, time::Duration};

use holdfast_grpc::{MemoryClient, Mesh, Signer};
use holdfast_kit::config;
use holdfast_proto::{
    gateway::v1::{AcceptRequest, ingest_client::IngestClient},
    memory::v1::GetStatusRequest,
};
use holdfast_types::{Kind, TenantId};

use crate::installation::Installation;

/// Error of a call that `service` makes with the key of `owner`; `None` if it succeeds.
async fn call(
    installation: &Installation,
    called: &str,
    service: &'static str,
    owner: &str,
) -> anyhow::Result<Option<Kind>> {
    let state = installation.state();
    let key = fs::read_to_string(installation.dir.join(format!("secrets/mesh-{owner}")))?;
    let keys = config::Mesh { key: key.trim().into(), ..config::Mesh::default() };
    let mesh = Mesh::new(Signer::new(&keys)?, service);
    let tenant = TenantId::generate();
    Ok(match called {
        "gateway" => {
            let url = state["gateway"]["grpc"].as_str().unwrap();
            let channel = mesh.connect(url, "gateway", Duration::from_secs(10))?;
            let request = mesh.request(tenant, AcceptRequest::default(), Duration::from_secs(10));
            let answer = IngestClient::new(channel).accept(request).await;
            answer.err().map(|status| holdfast_grpc::kind(&status))
        }
        _ => {
            let url = state["memory"]["http"].as_str().unwrap();
            let answer =
                MemoryClient::new(url, mesh)?.status(tenant, GetStatusRequest::default()).await;
            answer.err().map(|error| error.kind)
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_the_key_of_another_is_refused() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    installation.run(&["up", "--split", "--detach", "--port-base", "0"]).ok();

    for (called, service, owner, is_let_in) in [
        ("gateway", "channel-bridge", "channel-bridge", true),
        ("gateway", "channel-bridge", "agent-runner", false),
        ("gateway", "channel-bridge", "gateway", false),
        ("gateway", "agent-runner", "agent-runner", false),
        ("memory", "gateway", "gateway", true),
        ("memory", "agent-runner", "agent-runner", true),
        ("memory", "gateway", "agent-runner", false),
        ("memory", "agent-runner", "channel-bridge", false),
        ("memory", "channel-bridge", "channel-bridge", false),
    ] {
        let error = call(&installation, called, service, owner).await?;

        let what = format!("{called}: {service} with the key of {owner}: {error:?}");
        match is_let_in {
            // The tenant does not exist, which is found after the caller was let in.
            true => assert!(matches!(error, None | Some(Kind::NotFound | Kind::Invalid)), "{what}"),
            false => assert_eq!(error, Some(Kind::Unauthenticated), "{what}"),
        }
    }
    Ok(())
}
