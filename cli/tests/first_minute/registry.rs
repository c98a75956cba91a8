//! Skills of a registry with ClawHub's protocol, which a small server on loopback speaks.

use std::{fs, process::Command};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::installation::Installation;

/// Moderation verdicts of the registry's skills; `unjudged` has none.
fn moderation(slug: &str) -> Value {
    match slug {
        "harmful" => {
            json!({"isMalwareBlocked": true, "isSuspicious": true, "summary": "steals keys"})
        }
        "unjudged" => Value::Null,
        _ => json!({"isMalwareBlocked": false, "isSuspicious": false}),
    }
}

/// Answers a request for this path and query; `None` is not found.
fn answer(path: &str, archive: &[u8]) -> Option<Vec<u8>> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let json = match path.strip_prefix("/api/v1/")?.split('/').collect::<Vec<_>>().as_slice() {
        ["search"] if query.starts_with("q=plants") => json!({"results": [
            {"slug": "water-plants", "displayName": "Water plants", "summary": "Which plants need water",
             "version": "1.2.0", "score": 3.5},
        ]}),
        ["search"] => json!({"results": []}),
        ["skills", slug] => json!({
            "skill": {"slug": slug}, "latestVersion": {"version": "1.2.0"},
            "moderation": moderation(slug),
        }),
        ["download"] if query == "slug=water-plants&version=1.2.0" => {
            return Some(archive.to_vec());
        }
        ["download"] if query == "slug=unjudged&version=1.2.0" => return Some(archive.to_vec()),
        _ => return None,
    };
    Some(json.to_string().into_bytes())
}

/// Starts the registry, and returns its address.
async fn start_registry(archive: Vec<u8>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                request.push(byte);
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split_whitespace().nth(1).unwrap_or_default();
            let (status, body) = match answer(path, &archive) {
                Some(body) => ("200 OK", body),
                None => ("404 Not Found", Vec::new()),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            drop(stream.write_all(&[head.into_bytes(), body].concat()).await);
        }
    });
    Ok(address)
}

/// Returns an archive whose skills have both names that the registry has.
fn archive(folder: &std::path::Path, name: &str) -> anyhow::Result<Vec<u8>> {
    fs::create_dir_all(folder)?;
    let skill = format!(
        "---\nname: {name}\ndescription: Say which plants need water.\n---\n\nWater them.\n"
    );
    fs::write(folder.join("SKILL.md"), skill)?;
    let zip = "import zipfile; zipfile.ZipFile('skill.zip', 'w').write('SKILL.md')";
    assert!(Command::new("python3").args(["-c", zip]).current_dir(folder).status()?.success());
    Ok(fs::read(folder.join("skill.zip"))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_is_found_in_a_hub_and_installed_if_its_verdict_allows_it() -> anyhow::Result<()> {
    let mut installation = Installation::new().await?;
    let url = start_registry(archive(&installation.root.join("skill"), "water-plants")?).await?;
    let config = installation.root.join("holdfast.toml");
    let registry = format!(
        "[[skills.registries]]\nkind = \"clawhub\"\nname = \"hub\"\nbase_url = \"{url}\"\n"
    );
    fs::write(&config, registry)?;
    installation.vars.push(("HOLDFAST_CONFIG", config.display().to_string()));
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    let install = |slug: &str| {
        installation.run(&["skills", "install", slug, "--registry", "hub", "--agent", "main"])
    };

    let found = installation.json(&["skills", "find", "plants"]);
    assert_eq!((&found[0]["slug"], &found[0]["registry"]), (&"water-plants".into(), &"hub".into()));
    install("water-plants").ok();
    let listed = installation.json(&["skills", "list", "--agent", "main"]);
    let listed = listed.as_array().unwrap();
    let skill = listed.iter().find(|skill| skill["name"] == "water-plants").unwrap();
    assert_eq!(skill["scope"], "workspace", "{skill}");
    let change = installation.json(&["skills", "audit"])[0].clone();
    assert_eq!((&change["version"], &change["registry"]), (&"1.2.0".into(), &"hub".into()));

    let refused = install("unjudged");
    assert!(refused.code != Some(0) && refused.err.contains("nobody has judged it"), "{refused:?}");
    let harmful = install("harmful");
    assert!(harmful.code != Some(0) && harmful.err.contains("steals keys"), "{harmful:?}");
    // With the administrator's permission the archive is read, which is of another skill.
    installation.run(&["skills", "policy", "--unjudged", "yes"]).ok();
    let read = install("unjudged");
    assert!(read.code != Some(0) && read.err.contains("water-plants"), "{read:?}");
    let harmful = install("harmful");
    assert!(harmful.code != Some(0) && harmful.err.contains("steals keys"), "{harmful:?}");
    Ok(())
}
