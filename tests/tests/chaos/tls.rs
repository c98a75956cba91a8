//! TLS: conversations over it, rotation of certificates under load, and what is refused.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use holdfast_grpc::{MemoryCallError, MemoryClient};
use holdfast_kit::config;
use holdfast_kit::tls::Tls;
use holdfast_proto::memory::v1::GetStatusRequest;
use holdfast_testkit::certificates::write_whole;
use holdfast_testkit::{Authority, Backends, Certificate, Reply, TlsProxy, TlsStart};
use holdfast_tests::mesh::{Mesh, MeshConfig, RELOAD_TIME};
use holdfast_tests::person::{GrpcClient, TelegramUser, until};
use holdfast_tests::{program, turnstile};
use holdfast_types::{Kind, TenantId};
use reqwest::Url;
use serde_json::json;
use tokio::process::Command;
use tokio::time::sleep;
use tonic::Code;

use crate::RUNNER;

/// Maximum time for a service to start, or to refuse to.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// What the model answers to everything.
const ANSWER: &str = "it is encrypted";

async fn mesh() -> anyhow::Result<Mesh> {
    let plan = MeshConfig { memories: 1, schedulers: 1, tls: true, ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::start(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(|_| Reply::text(ANSWER));
    Ok(mesh)
}

/// Calls the memory service without saying for whom, which it refuses as invalid if it lets the
/// caller in.
async fn call(memory: &MemoryClient, tenant: TenantId) -> Result<(), MemoryCallError> {
    match memory.status(tenant, GetStatusRequest::default()).await {
        Err(error) if error.kind != Kind::Invalid => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Runs the command line with a tenant's key; returns its exit code, and what it wrote to stdout and
/// stderr.
async fn holdfast(
    mesh: &Mesh,
    gateway: &str,
    authorities: Option<&str>,
    args: &[&str],
) -> anyhow::Result<(Option<i32>, String)> {
    let mut command = Command::new(program::holdfast().await?);
    command.args(args).args(["--gateway", gateway]).stdin(Stdio::null());
    command.env("HOLDFAST_API_KEY", &mesh.tenants[0].key).env_remove("HOLDFAST_CA_FILE");
    if let Some(authorities) = authorities {
        command.args(["--ca-file", authorities]);
    }
    let output = command.output().await?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_go_over_https_grpc_with_tls_and_a_bridge() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = mesh().await?;
    let certificates = mesh.certificates.as_ref().context("no certificates")?;
    let authorities = certificates.authorities().display().to_string();

    let answer = GrpcClient::of(&mesh, 0)?.ask("", "hello").await?;
    ensure!(answer == ANSWER, "over gRPC: {answer}");

    let root = reqwest::Certificate::from_pem(&std::fs::read(&authorities)?)?;
    let http = reqwest::Client::builder().tls_certs_only([root]).build()?;
    let http_url = format!("https://{}/v1/chat/completions", mesh.gateways[0].spec().http);
    let request = json!({"model": "holdfast", "messages": [{"role": "user", "content": "hello"}]});
    let answer = http.post(http_url).bearer_auth(&mesh.tenants[0].key).json(&request);
    let answer = answer.send().await?.error_for_status()?.text().await?;
    ensure!(answer.contains(ANSWER), "over HTTPS: {answer}");

    let url = format!("https://{}", mesh.grpc[0]);
    let (code, text) = holdfast(&mesh, &url, Some(&authorities), &["chat", "hello"]).await?;
    ensure!(code == Some(0) && text.contains(ANSWER), "the command line: {text}");

    // The bridge calls the gateway with its certificate.
    let user = TelegramUser::of(&mesh, &mesh.tenants[0].bot, 42);
    ensure!(user.ask("hello").await? == ANSWER, "over a bridge");

    // The runner and the gateway call the memory service with theirs.
    let args = ["memory", "search", "hello"];
    let (code, text) = holdfast(&mesh, &url, Some(&authorities), &args).await?;
    ensure!(code == Some(0), "the memory service: {text}");
    for node in mesh.nodes() {
        let complaints = node.complaints().await;
        ensure!(complaints.is_empty(), "{}: {complaints:?}", node.spec().name);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_their_authority_are_replaced_twice_and_no_call_fails()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = mesh().await?;
    let certificates = mesh.certificates.as_ref().context("no certificates")?;
    let first = std::fs::read(&certificates.files.certificate)?;
    // Each call makes a connection, with the authorities that the file has at that moment.
    let client = |path| {
        let authorities = Some(path);
        let tls = Tls::load(&config::Tls { authorities, ..config::Tls::default() })?;
        let url = format!("https://{}", mesh.grpc[0]);
        let channel = holdfast_grpc::channel_by(tls.connector(), &url, Duration::from_secs(30))?;
        anyhow::Ok(GrpcClient::of(&mesh, 0)?.over(channel))
    };
    let service = mesh.memory_client_with(certificates.service(&certificates.files)?)?;
    let (path, is_over, calls) =
        (certificates.authorities(), AtomicBool::new(false), AtomicU64::new(0));
    let caller = async |number: usize| {
        while !is_over.load(Ordering::Relaxed) {
            let answer = client(path.clone())?.ask(&format!("load-{number}"), "hello").await?;
            ensure!(answer == ANSWER, "{answer}");
            call(&service, mesh.tenants[0].id).await?;
            calls.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    let bot = TelegramUser::of(&mesh, &mesh.tenants[0].bot, 42);
    let rotate = async {
        for _ in 0..2 {
            let rotated = certificates.rotate().await;
            let spoken = bot.ask("hello").await;
            if rotated.is_err() || spoken.is_err() {
                is_over.store(true, Ordering::Relaxed);
            }
            rotated?;
            spoken?;
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let (called, rotated) = tokio::join!(try_join_all((0..3).map(caller)), rotate);

    called?;
    rotated?;
    ensure!(calls.load(Ordering::Relaxed) > 20, "there was no load: {calls:?}");
    ensure!(first != std::fs::read(&certificates.files.certificate)?, "nothing was replaced");
    let refused = mesh.memory_client_with(certificates.service(
        &Authority::new()?.issue(&["127.0.0.1"])?.write(certificates.folder(), "old")?,
    )?)?;
    let refused = call(&refused, mesh.tenants[0].id).await;
    ensure!(refused.is_err(), "a certificate of no trusted authority is accepted");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_a_valid_certificate_of_the_authority_is_refused() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = mesh().await?;
    let certificates = mesh.certificates.as_ref().context("no certificates")?;
    let names = ["127.0.0.1", "gateway"];
    let files = |certificate: Certificate| certificate.write(certificates.folder(), "caller");
    let tenant = mesh.tenants[0].id;
    let status = async |tls: Tls| {
        call(&mesh.memory_client_with(tls)?, tenant).await?;
        anyhow::Ok(())
    };

    status(certificates.service(&certificates.files)?).await?;
    let refused = format!("{:?}", status(certificates.client()?).await.unwrap_err());
    ensure!(refused.contains("services must show a certificate here"), "{refused}");
    let expired = files(certificates.authority().issue_expired(&names)?)?;
    ensure!(status(certificates.service(&expired)?).await.is_err(), "an expired one");
    let stranger = files(Authority::new()?.issue(&names)?)?;
    ensure!(status(certificates.service(&stranger)?).await.is_err(), "one of another authority");
    let runner = files(certificates.authority().issue(&["127.0.0.1", "test-agent-runner"])?)?;
    let refused = format!("{:?}", status(certificates.service(&runner)?).await.unwrap_err());
    let expected = "the certificate is not of the service `gateway`, its names are \
                    `test-agent-runner`";
    ensure!(refused.contains(expected), "{refused}");
    let log = mesh.memories[0].output().await;
    ensure!(log.contains("its certificate has not the name of this service"), "{log}");
    ensure!(
        log.contains("a caller is refused: give it a certificate of `tls.authorities`"),
        "the operator is not told: {log}"
    );

    // A bridge's key alone lets nobody in. Its request is invalid, which only a gateway that let it in
    // finds out.
    let status = mesh.accept_as_bridge(certificates.service(&certificates.files)?).await?;
    ensure!(status.code() == Code::InvalidArgument, "the bridge is refused: {status:?}");
    let status = mesh.accept_as_bridge(certificates.client()?).await?;
    ensure!(status.code() == Code::Unauthenticated, "without a certificate: {status:?}");
    ensure!(status.message().contains("services must show a certificate here"), "{status:?}");
    let status = mesh.accept_as_bridge(certificates.service(&stranger)?).await?;
    ensure!(status.code() != Code::InvalidArgument, "of another authority: {status:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_new_certificate_is_logged_once_and_the_old_one_stays_in_use() -> anyhow::Result<()>
{
    let _turn = turnstile::lock_shared().await?;
    let mesh = mesh().await?;
    let certificates = mesh.certificates.as_ref().context("no certificates")?;
    let lines = |output: String| output.matches("changed files cannot be used").count();

    let other = Authority::new()?.issue(&["127.0.0.1"])?;
    write_whole(&certificates.files.private_key, &other.private_key)?;
    until("the operator is told", async || Ok(lines(mesh.gateways[0].output().await) > 0)).await?;
    sleep(RELOAD_TIME).await;

    let output = mesh.gateways[0].output().await;
    ensure!(lines(output.clone()) == 1, "{output}");
    ensure!(output.contains("is of another certificate"), "{output}");
    ensure!(GrpcClient::of(&mesh, 0)?.ask("", "hello").await? == ANSWER, "it is not in use");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_says_what_is_wrong_with_a_gateways_certificate() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let mesh = mesh().await?;
    let certificates = mesh.certificates.as_ref().context("no certificates")?;
    let trusted = certificates.authorities().display().to_string();
    let (host, port) = (mesh.grpc[0].ip(), mesh.grpc[0].port());
    let told = async |gateway: &str, authorities: Option<&str>, expected: &str| {
        let (code, text) = holdfast(&mesh, gateway, authorities, &["agents", "list"]).await?;
        ensure!(code != Some(0) && text.contains(expected), "{gateway}: {code:?} {text}");
        anyhow::Ok(())
    };
    let good = format!("https://{host}:{port}");

    told(&good, None, "its certificate is of an unknown authority; name the file").await?;
    told(&good, None, "--ca-file or HOLDFAST_CA_FILE").await?;
    told(&good, Some("/nowhere.pem"), "cannot read `/nowhere.pem`").await?;
    told(&format!("http://{host}:{port}"), None, "write `https://").await?;
    told(&format!("https://127.0.0.2:{port}"), Some(&trusted), "refused").await?;

    for (issued, expected) in [
        (certificates.authority().issue_expired(&["127.0.0.1"])?, "its certificate has expired"),
        (
            certificates.authority().issue(&["gateway.example"])?,
            "its certificate is for other names: \
             DnsName(\"gateway.example\")",
        ),
    ] {
        let upstream = mesh.grpc[0];
        let proxy = TlsProxy::start(upstream, &issued, TlsStart::AtOnce).await?;
        told(&format!("https://127.0.0.1:{}", proxy.port()), Some(&trusted), expected).await?;
    }
    let model: Url = mesh.fakes.model.url().parse()?;
    let plain = format!("https://127.0.0.1:{}", model.port().context("no port")?);
    told(&plain, Some(&trusted), "it speaks no TLS").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_speaks_plain_text_to_other_machines_only_if_it_is_permitted()
-> anyhow::Result<()> {
    let mesh = Mesh::prepare(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
    let gateway = &mesh.gateways[0];
    let listen = ("HOLDFAST_GATEWAY__HTTP", "192.0.2.7:18789");
    let is_told = async |reason: &str| {
        until(reason, async || Ok(gateway.output().await.contains(reason))).await?;
        gateway.wait_for_death(START_TIMEOUT).await
    };

    gateway.start_with(&[listen]).await?;
    is_told("HOLDFAST_TLS__ALLOW_PLAIN=true").await?;
    // No machine has this address, which is found out once it is permitted.
    gateway.start_with(&[listen, ("HOLDFAST_TLS__ALLOW_PLAIN", "true")]).await?;
    is_told("this machine has no such address").await
}
