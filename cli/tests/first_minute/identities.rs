//! Which service can call which, with the keys that `up` makes.

use std::{fs, time::Duration};

use holdfast_grpc::{MemoryClient, Mesh, SecretsClient, Signer};
use holdfast_kit::{config, tls::Tls};
use holdfast_proto::{
    gateway::v1::{AcceptRequest, ingest_client::IngestClient},
    memory::v1::GetStatusRequest,
    secrets::v1::{DeriveSigningKeysRequest, SigningPurpose},
};
use holdfast_types::{Kind, TenantId};

use crate::installation::Installation;

/// Error of a call that `service` makes with the key in a file; `None` if it succeeds.
async fn call(
    installation: &Installation,
    called: &str,
    service: &'static str,
    key_file: &str,
) -> anyhow::Result<Option<Kind>> {
    let state = installation.state();
    let key = fs::read_to_string(installation.dir.join("secrets").join(key_file))?;
    let keys = config::Mesh { key: key.trim().into(), ..config::Mesh::default() };
    let tenant = TenantId::generate();
    if called == "secrets" {
        let secrets_url = state["secrets"]["http"].as_str().unwrap().to_owned();
        let mesh = config::Mesh { secrets_url, ..keys };
        let none = config::Secrets::default();
        let client = SecretsClient::configured(&none, &mesh, &Tls::default(), service)?;
        let purpose = SigningPurpose::Requests.into();
        let request = DeriveSigningKeysRequest { purpose, ..DeriveSigningKeysRequest::default() };
        let answer = client.unwrap().derive_signing_keys(tenant, request).await;
        return Ok(answer.err().map(|error| match error.to_string() {
            text if text.contains("signature is wrong") => Kind::Unauthenticated,
            text if text.contains("may not") => Kind::Forbidden,
            _ => Kind::Internal,
        }));
    }
    let mesh = Mesh::new(Signer::new(&keys)?, service);
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

    for (called, service, key_file, is_let_in) in [
        ("gateway", "channel-bridge", "mesh-channel-bridge", true),
        ("gateway", "channel-bridge", "mesh-agent-runner", false),
        ("gateway", "channel-bridge", "mesh-gateway", false),
        ("gateway", "agent-runner", "mesh-agent-runner", false),
        ("memory", "gateway", "mesh-gateway", true),
        ("memory", "agent-runner", "mesh-agent-runner", true),
        ("memory", "gateway", "mesh-agent-runner", false),
        ("memory", "agent-runner", "mesh-channel-bridge", false),
        ("memory", "channel-bridge", "mesh-channel-bridge", false),
        ("secrets", "gateway", "secrets-gateway", true),
        ("secrets", "agent-runner", "secrets-agent-runner", true),
        // The memory service knows these two, and the gateway the third.
        ("secrets", "gateway", "mesh-gateway", false),
        ("secrets", "agent-runner", "mesh-agent-runner", false),
        ("secrets", "channel-bridge", "mesh-channel-bridge", false),
        ("secrets", "agent-runner", "secrets-channel-bridge", false),
    ] {
        let error = call(&installation, called, service, key_file).await?;

        let what = format!("{called}: {service} with {key_file}: {error:?}");
        match is_let_in {
            // The tenant does not exist, which is found after the caller was let in.
            true => assert!(matches!(error, None | Some(Kind::NotFound | Kind::Invalid)), "{what}"),
            false => assert_eq!(error, Some(Kind::Unauthenticated), "{what}"),
        }
    }
    Ok(())
}
