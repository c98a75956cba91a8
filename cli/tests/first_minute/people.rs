//! People sign in with `holdfast login`.

mod needs_packages;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    process::{Child, Stdio},
};

use holdfast_testkit::FakeIssuer;
use serde_json::{Value, json};

use crate::installation::{CommandOutput, Installation};

/// An installation whose tenant `dev` has the people of an issuer: members, staff as operators.
async fn installation_of(url: &str) -> anyhow::Result<Installation> {
    let mut installation = Installation::new().await?;
    fs::create_dir_all(&installation.root)?;
    let config = installation.root.join("holdfast.toml");
    let issuer = format!(
        "[[oidc.issuers]]\nurl = \"{url}\"\naudiences = [\"holdfast\"]\ntenant = \"dev\"\n\
         default_role = \"member\"\nroles = {{ staff = \"operator\" }}\n"
    );
    fs::write(&config, issuer)?;
    installation.vars.push(("HOLDFAST_CONFIG", config.display().to_string()));
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    Ok(installation)
}

async fn installation(issuer: &FakeIssuer) -> anyhow::Result<Installation> {
    issuer.set_person(json!({"sub": "7", "name": "Anna A"}));
    installation_of(&issuer.url()).await
}

/// Starts a `login`, and returns it with the address that it shows.
fn start_login(installation: &Installation, url: &str, more: &[&str]) -> (Child, String) {
    let line = [&["login", "--issuer", url, "--client-id", "holdfast"], more].concat();
    let mut command = installation.command(&line);
    let mut login = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let told = BufReader::new(login.stderr.as_mut().unwrap()).lines();
    let address = told.map(Result::unwrap).find(|line| line.trim().starts_with("http"));
    (login, address.unwrap().trim().to_owned())
}

fn end_of(mut login: Child) -> CommandOutput {
    let (mut out, mut err) = (String::new(), String::new());
    login.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    login.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    let code = login.wait().unwrap().code();
    CommandOutput { line: "login".to_owned(), code, out, err }
}

/// Signs in as a person with a browser does.
async fn sign_in(
    installation: &Installation,
    issuer: &FakeIssuer,
) -> anyhow::Result<CommandOutput> {
    let (login, address) = start_login(installation, &issuer.url(), &["--no-browser"]);
    holdfast_kit::tls::install_crypto();
    let page = reqwest::Client::builder().no_proxy().build()?.get(address).send().await?;
    assert_eq!(page.status(), 200);
    Ok(end_of(login))
}

fn stored(installation: &Installation) -> Value {
    let text = fs::read_to_string(installation.dir.join("login.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_chats_and_signs_out() -> anyhow::Result<()> {
    let issuer = FakeIssuer::start().await?;
    let installation = installation(&issuer).await?;

    let signed_in = sign_in(&installation, &issuer).await?.ok();
    assert!(signed_in.out.contains("Anna A (member of the tenant dev)"), "{}", signed_in.out);
    let mode = fs::metadata(installation.dir.join("login.json"))?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let who = installation.json(&["whoami"]);
    assert!(who["id"].as_str().unwrap().starts_with("per_"), "{who}");
    assert!(installation.run(&["chat", "hello"]).ok().out.contains("demonstration"));
    let refused = installation.run(&["keys", "create", "more"]).exits_with(4);
    assert!(refused.err.contains("the role `owner`, and yours is `member`"), "{}", refused.err);

    // The refused attempt, and the person's first sign-in, as the holder of the key sees them.
    let key = fs::read_to_string(installation.dir.join("dev.key"))?;
    let by_key = ["audit", "list", "--key", key.trim()];
    let audit = installation.json(&by_key);
    let of = |action: &str| {
        let events = audit.as_array().unwrap();
        events.iter().find(|event| event["action"] == action).unwrap().clone()
    };
    assert_eq!(of("Keys/CreateKey")["outcome"], "permission_denied");
    assert_eq!(of("Keys/CreateKey")["actor"], who["id"]);
    assert_eq!(of("person.create")["actor_name"], "Anna A");
    let lines = installation.run(&["audit", "export", "--key", key.trim()]).ok().out;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), audit.as_array().unwrap().len());

    let refresh = stored(&installation)["refresh_token"].as_str().unwrap().to_owned();
    assert!(issuer.has_refresh_token(&refresh));
    installation.run(&["logout"]).ok();
    assert!(!installation.dir.join("login.json").exists());
    assert!(!issuer.has_refresh_token(&refresh), "the provider was not told");
    let who = installation.json(&["whoami"]);
    // The key of the folder is its owner's.
    assert!(who["id"].as_str().unwrap().starts_with("per_"), "{who}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_linked_merged_exported_and_erased() -> anyhow::Result<()> {
    let issuer = FakeIssuer::start().await?;
    let installation = installation(&issuer).await?;
    let mut ids = Vec::new();
    for (sub, name) in [("7", "Anna A"), ("8", "Anna at home")] {
        issuer.set_person(json!({"sub": sub, "name": name}));
        sign_in(&installation, &issuer).await?.ok();
        installation.run(&["chat", &format!("hello from {name}")]).ok();
        let shown = installation.json(&["people", "show"]);
        ids.push(shown["id"].as_str().unwrap().to_owned());
        let code = installation.json(&["people", "link"]);
        assert!(code["send"].as_str().unwrap().starts_with("/link "), "{code}");
        installation.run(&["logout"]).ok();
    }
    let [anna, at_home] = &ids[..] else { panic!("{ids:?}") };
    let values = |id: &str| {
        let shown = installation.json(&["people", "show", id]);
        let identities = shown["identities"].as_array().unwrap().clone();
        identities.iter().map(|one| one["value"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    installation.run(&["people", "link", anna, "api:anna"]).ok();
    let channel = ["people", "link", anna, "telegram:42"];
    assert!(installation.run(&channel).exits_with(2).err.contains("is linked by its person"));
    assert!(values(anna).contains(&"api:anna".to_owned()));
    installation.run(&["people", "merge", at_home, anna]).ok();
    assert!(values(anna).contains(at_home));
    installation.run(&["people", "split", anna, "api:anna"]).ok();
    assert!(!values(anna).contains(&"api:anna".to_owned()));
    let folder = installation.root.join("export");
    let to = folder.display().to_string();
    let exported = installation.json(&["people", "export", anna, "--to", &to]);
    assert_eq!(exported["conversations"], 2, "{exported}");
    let conversations = fs::read_dir(folder.join("conversations"))?;
    let texts: Vec<String> =
        conversations.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    for name in ["Anna A", "Anna at home"] {
        assert!(texts.iter().any(|text| text.contains(&format!("hello from {name}"))), "{name}");
    }
    let record: Value = serde_json::from_str(&fs::read_to_string(folder.join("person.json"))?)?;
    assert_eq!(record["id"], anna.as_str());

    let refused = installation.run(&["people", "erase", anna]).exits_with(2);
    assert!(refused.err.contains("add `--yes`"), "{}", refused.err);
    let erased = installation.json(&["people", "erase", anna, "--yes"]);
    assert_eq!(erased["erased"]["sessions"], 2, "{erased}");
    let people = installation.json(&["people", "list"]);
    assert!(people.as_array().unwrap().iter().all(|person| person["id"] != anna.as_str()));
    assert_eq!(installation.json(&["people", "assign"]), json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_before_it_expires_and_goes_to_its_gateway_only() -> anyhow::Result<()> {
    let issuer = FakeIssuer::start().await?;
    let installation = installation(&issuer).await?;
    issuer.set_lifetime(20);
    sign_in(&installation, &issuer).await?.ok();
    let first = stored(&installation);

    issuer.set_lifetime(3600);
    installation.run(&["whoami"]).ok();
    let second = stored(&installation);
    assert_ne!(first["id_token"], second["id_token"]);
    assert_ne!(first["refresh_token"], second["refresh_token"]);
    installation.run(&["whoami"]).ok();
    assert_eq!(stored(&installation), second, "a valid token was renewed");

    // Another gateway gets the key that was given for it, or nothing, but not this token.
    fs::remove_file(installation.dir.join("dev.key"))?;
    let elsewhere = ["whoami", "--gateway", "http://127.0.0.1:1"];
    assert!(installation.run(&elsewhere).exits_with(4).err.contains("holdfast login"));

    // The provider has ended the sign-in.
    issuer.set_lifetime(20);
    sign_in(&installation, &issuer).await?.ok();
    let mut login = stored(&installation);
    login["refresh_token"] = "gone".into();
    fs::write(installation.dir.join("login.json"), login.to_string())?;
    let ended = installation.run(&["whoami"]);
    assert_ne!(ended.code, Some(0));
    assert!(ended.err.contains("sign in again with `holdfast login`"), "{}", ended.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_with_a_code_on_another_machine() -> anyhow::Result<()> {
    let issuer = FakeIssuer::start().await?;
    let installation = installation(&issuer).await?;

    let (login, _) = start_login(&installation, &issuer.url(), &["--device"]);
    issuer.confirm_devices();
    let signed_in = end_of(login).ok();
    assert!(signed_in.out.contains("Anna A"), "{}", signed_in.out);

    let wrong = installation.run(&["login", "--issuer", "http://127.0.0.1:1", "--client-id", "x"]);
    assert!(wrong.err.contains("`http://127.0.0.1:1` cannot be reached"), "{}", wrong.err);
    let plain =
        installation.run(&["login", "--issuer", "http://id.example.com", "--client-id", "x"]);
    assert!(plain.err.contains("is not an https:// address"), "{}", plain.err);
    Ok(())
}
