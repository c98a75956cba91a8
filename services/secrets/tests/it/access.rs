//! Each service seals and opens what its code needs, and nothing else: a table of
//! `docs/stolen-parts.md`.

use holdfast_grpc::{SecretsCallError, SecretsClient};
use holdfast_proto::secrets::v1::{self as pb, purpose::Kind};
use holdfast_testkit::generated::check_stolen_parts;
use holdfast_types::{AccountId, TenantId};
use uuid::Uuid;

use crate::world::{KEYS, Served, secrets};

const GATEWAY: &str = "gateway";
const RUNNER: &str = "agent-runner";
const BRIDGE: &str = "channel-bridge";

type Services = &'static [&'static str];

/// Each kind of secret with its name on the page, and the services that may seal and that may open it.
fn table() -> [(&'static str, Kind, Services, Services); 10] {
    let text = || "a".to_owned();
    let credential = || pb::ProviderCredential { provider: text(), name: text() };
    let variable = pb::SkillVariable { skill: text(), name: text() };
    let account = AccountId::generate().to_string();
    let id = || Uuid::now_v7().to_string();
    [
        ("keys of model providers", Kind::ProviderKey(text()), &[GATEWAY], &[GATEWAY, RUNNER]),
        (
            "headers of model providers",
            Kind::ProviderHeaders(text()),
            &[GATEWAY],
            &[GATEWAY, RUNNER],
        ),
        (
            "tokens and further keys of model providers",
            Kind::Credential(credential()),
            &[GATEWAY, RUNNER],
            &[GATEWAY, RUNNER],
        ),
        ("keys of the platform", Kind::PlatformKey(credential()), &[GATEWAY], &[GATEWAY, RUNNER]),
        (
            "tokens of channel accounts",
            Kind::AccountSecrets(account),
            &[GATEWAY],
            &[GATEWAY, BRIDGE],
        ),
        ("secrets of MCP servers", Kind::McpSecrets(text()), &[GATEWAY], &[RUNNER]),
        ("secrets of connections", Kind::ConnectionSecret(text()), &[GATEWAY], &[RUNNER]),
        ("secrets of webhooks", Kind::EventWebhook(id()), &[GATEWAY], &[RUNNER]),
        ("variables of skills", Kind::SkillEnv(variable), &[GATEWAY], &[RUNNER]),
        (
            "refresh tokens of people who signed in",
            Kind::RefreshToken(id()),
            &[GATEWAY],
            &[GATEWAY],
        ),
    ]
}

/// Whether a call was executed; `false` if it was refused for its caller.
fn is_allowed<T>(answer: Result<T, SecretsCallError>) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("may not"), "{text}");
            false
        }
    }
}

async fn seal(
    client: &SecretsClient,
    tenant: TenantId,
    (kind, data_key): (&Kind, &[u8]),
) -> Result<Vec<u8>, SecretsCallError> {
    let request = pb::SealRequest {
        purpose: Some(pb::Purpose { kind: Some(kind.clone()) }),
        data_key: data_key.to_vec(),
        value: b"sk-1".to_vec(),
    };
    Ok(client.seal(tenant, request).await?.sealed)
}

async fn open(
    client: &SecretsClient,
    tenant: TenantId,
    (kind, data_key): (&Kind, &[u8]),
    sealed: &[u8],
) -> Result<Option<Vec<u8>>, SecretsCallError> {
    let request = pb::OpenRequest {
        purpose: Some(pb::Purpose { kind: Some(kind.clone()) }),
        data_key: data_key.to_vec(),
        sealed: sealed.to_vec(),
        r#use: "test".to_owned(),
    };
    Ok(client.open(tenant, request).await?.value)
}

async fn new_data_key(client: &SecretsClient, tenant: TenantId) -> Vec<u8> {
    client.create_data_key(tenant, pb::CreateDataKeyRequest {}).await.unwrap().data_key
}

#[tokio::test]
async fn each_service_seals_and_opens_its_own_kinds_of_secrets_and_no_others() -> anyhow::Result<()>
{
    let served = Served::start(secrets(1)).await?;
    let tenant = TenantId::generate();
    let gateway = served.client(GATEWAY, GATEWAY);
    let data_key = new_data_key(&gateway, tenant).await;

    let mut rows = Vec::new();
    for (name, kind, sealers, openers) in table() {
        let mut row = vec![name.to_owned()];
        let what = (&kind, data_key.as_slice());
        let sealed = seal(&gateway, tenant, what).await?;
        for (service, _) in KEYS {
            let client = served.client(service, service);
            let is_sealed = is_allowed(seal(&client, tenant, what).await);
            let opened = open(&client, tenant, what, &sealed).await;
            if let Ok(opened) = &opened {
                assert_eq!(opened.as_deref(), Some(b"sk-1".as_slice()), "{service} {kind:?}");
            }
            assert_eq!(is_sealed, sealers.contains(&service), "{service} seals {kind:?}");
            let is_opened = is_allowed(opened);
            assert_eq!(is_opened, openers.contains(&service), "{service} opens {kind:?}");
            let verbs = [(is_sealed, "seals"), (is_opened, "opens")];
            let verbs = verbs.into_iter().filter_map(|(is_done, verb)| is_done.then_some(verb));
            let cell = verbs.collect::<Vec<_>>().join(", ");
            row.push(if cell.is_empty() { "—".to_owned() } else { cell });
        }
        rows.push(row);
    }
    served.stop().await?;
    let services = KEYS.map(|(service, _)| service);
    let head: Vec<&str> = ["of"].into_iter().chain(services).collect();
    check_stolen_parts("secrets-service", &head, &rows)
}

#[tokio::test]
async fn only_the_gateway_creates_data_keys_and_only_it_and_runners_sign() -> anyhow::Result<()> {
    let served = Served::start(secrets(1)).await?;
    let tenant = TenantId::generate();

    for (service, _) in KEYS {
        let client = served.client(service, service);
        let created = client.create_data_key(tenant, pb::CreateDataKeyRequest {}).await;
        let purpose = pb::SigningPurpose::Jobs.into();
        let request = pb::DeriveSigningKeysRequest { secret: b"secret".to_vec(), purpose };
        let derived = client.derive_signing_keys(tenant, request).await;
        assert_eq!(is_allowed(created), service == GATEWAY, "{service}");
        assert_eq!(is_allowed(derived), [GATEWAY, RUNNER].contains(&service), "{service}");
    }
    served.stop().await
}

#[tokio::test]
async fn a_service_does_not_call_in_the_name_of_another() -> anyhow::Result<()> {
    let served = Served::start(secrets(1)).await?;
    let tenant = TenantId::generate();
    let forged = served.client(GATEWAY, BRIDGE);

    let refused = forged.create_data_key(tenant, pb::CreateDataKeyRequest {}).await.unwrap_err();

    assert!(refused.to_string().contains("signature is wrong"), "{refused}");
    served.stop().await
}

#[tokio::test]
async fn a_secret_opens_only_for_its_own_tenant_and_purpose() -> anyhow::Result<()> {
    let served = Served::start(secrets(1)).await?;
    let (ours, theirs) = (TenantId::generate(), TenantId::generate());
    let gateway = served.client(GATEWAY, GATEWAY);
    let runner = served.client(RUNNER, RUNNER);
    let (our_key, their_key) =
        (new_data_key(&gateway, ours).await, new_data_key(&gateway, theirs).await);
    let (kind, other) = (Kind::ProviderKey("a".to_owned()), Kind::ProviderKey("b".to_owned()));
    let sealed = seal(&gateway, ours, (&kind, &our_key)).await?;

    let own = open(&runner, ours, (&kind, &our_key), &sealed).await?;
    for (tenant, kind, key) in [
        (theirs, &kind, &our_key),
        (theirs, &kind, &their_key),
        (ours, &kind, &their_key),
        (ours, &other, &our_key),
    ] {
        assert_eq!(open(&runner, tenant, (kind, key), &sealed).await?, None, "{tenant} {kind:?}");
    }

    assert_eq!(own.as_deref(), Some(b"sk-1".as_slice()));
    // A data key is no secret that opens.
    let platform = pb::ProviderCredential { provider: "a".to_owned(), name: "b".to_owned() };
    let platform = Kind::PlatformKey(platform);
    assert_eq!(open(&runner, ours, (&platform, &[]), &our_key).await?, None);
    served.stop().await
}
